#!/usr/bin/env bash
# Who may include whom (docs/design.md): ir <- model, compiler, runtime, which never include one another; LLVM only
# in compiler/emit; JSON in no header.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
failed=0

# complain <what is wrong> <lines of grep output>
complain() {
  [ -z "$2" ] && return
  printf '%s:\n%s\n' "$1" "$2"
  failed=1
}

# allow <folder> <regular expression of project folders it may include>
allow() {
  complain "$1/ may include only $2" "$(git ls-files "$1/*.h" "$1/*.cpp" "$1/*.def" |
    xargs -r grep -nE '^#include "[^"]*/' | grep -vE "#include \"($2)/")"
}

allow ir 'ir'
allow model 'ir|model'
allow compiler 'ir|compiler'
allow runtime 'ir|runtime'
complain 'LLVM headers belong in compiler/emit/' "$(git grep -nE '#include [<"]llvm' -- '*.h' '*.cpp' ':!compiler/emit/')"
complain 'JSON belongs in .cpp files' "$(git grep -nE '#include [<"]nlohmann' -- '*.h')"
complain 'a switch over ops names every op' "$(git grep -nE 'default:' -- 'ir/graph/*.cpp' 'compiler/graph/*.cpp')"
exit "$failed"
