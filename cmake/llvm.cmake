# LLVM 19 as static archives: NVPTX and the host's back end, no libLLVM.so at run time.
find_package(LLVM 19.1 REQUIRED CONFIG HINTS /usr/lib/llvm-19/lib/cmake/llvm)
set(ZLIB_USE_STATIC_LIBS ON)
find_package(ZLIB REQUIRED)
# Debian's LLVM names the shared zstd; the archive beside it serves the static link.
find_library(STEPC_ZSTD_ARCHIVE NAMES libzstd.a)
if(STEPC_ZSTD_ARCHIVE AND TARGET zstd::libzstd_shared)
  set_target_properties(zstd::libzstd_shared PROPERTIES IMPORTED_LOCATION ${STEPC_ZSTD_ARCHIVE})
endif()
llvm_map_components_to_libnames(STEPC_LLVM_ARCHIVES
  analysis codegen core ipo irreader passes support target targetparser transformutils bitwriter
  nvptxcodegen nvptxdesc nvptxinfo orcjit x86codegen x86desc x86info x86asmparser)
add_library(stepc_llvm INTERFACE)
target_include_directories(stepc_llvm SYSTEM INTERFACE ${LLVM_INCLUDE_DIRS})
target_compile_definitions(stepc_llvm INTERFACE ${LLVM_DEFINITIONS_LIST})
target_link_libraries(stepc_llvm INTERFACE ${STEPC_LLVM_ARCHIVES})
