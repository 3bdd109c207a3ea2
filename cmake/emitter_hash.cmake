# Writes OUTPUT, a C string literal: the hash of all files in the list file SOURCES. Compiled kernels are cached
# under it, so that a changed emitter never meets the code of an older one.
file(STRINGS ${SOURCES} sources)
set(hashes "")
foreach(source IN LISTS sources)
  file(SHA256 ${source} hash)
  string(APPEND hashes ${hash})
endforeach()
string(SHA256 hash "${hashes}")
file(WRITE ${OUTPUT} "\"${hash}\"\n")
