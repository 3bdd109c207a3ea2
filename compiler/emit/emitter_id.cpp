#include "compiler/emit/emitter_id.h"

#include <llvm/Config/llvm-config.h>

namespace stepc {

std::string emitter_id() {
  return std::string("LLVM ") + LLVM_VERSION_STRING + ", emitter " +
#include "emitter_hash.inc"
      ;
}

}  // namespace stepc
