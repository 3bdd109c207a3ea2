# Building, checking and testing. Sourced by ./dev.

# build <release|sanitize> <target...>
build() {
  local kind=$1 folder=build/$1
  shift
  mkdir -p build
  local options=(-G Ninja -DCMAKE_BUILD_TYPE=Release)
  [ "$kind" = sanitize ] && options+=(-DSTEPC_SANITIZE=ON)
  command -v ccache >/dev/null && options+=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
  if [ ! -f "$folder/build.ninja" ]; then cmake -S . -B "$folder" "${options[@]}" > "$folder.log" 2>&1 || { cat "$folder.log"; return 1; }; fi
  NINJA_STATUS='[%f/%t %es] ' ninja -C "$folder" "$@"
}

sources() { git ls-files '*.cpp' '*.h'; }

format_sources() { sources | xargs clang-format-19 -i; }

run_checks() {
  local failed=0
  if command -v clang-format-19 >/dev/null; then
    sources | xargs clang-format-19 --dry-run --Werror || failed=1
  else
    echo "skipped: formatting (no clang-format-19)"
  fi
  tools/dev/check_layers.sh || failed=1
  tools/dev/check_sizes.sh || failed=1
  [ "$failed" = 0 ] && echo "checks: ok"
  return "$failed"
}

# run_ctest <build folder> [ctest options]: every doctest program, and the lines in which tests name what they skip.
run_ctest() {
  rm -f "$1"/tests/skipped-*.txt
  local folder=$1
  shift
  local status=0
  ctest --test-dir "$folder" --output-on-failure -j "$(nproc)" "$@" | tee "$folder/ctest.log" || status=1
  return "$status"
}

# The parsers (PTX too), the verifiers, the planner, the emulator and the runtime's host path, with undefined behaviour
# and bad accesses fatal. LLVM itself is not instrumented.
sanitize() {
  build sanitize test_ir test_runtime test_emulator &&
    ctest --test-dir build/sanitize --output-on-failure -R '^(ir|runtime|emulator)$'
}

summary() {
  local passed failed skips
  passed=$(grep -cE '^ *[0-9]+/[0-9]+ Test .* Passed' build/release/ctest.log || true)
  failed=$(grep -cE '^ *[0-9]+/[0-9]+ Test .*(Failed|Timeout|Not Run)' build/release/ctest.log || true)
  skips=$(cat build/release/tests/skipped-*.txt 2>/dev/null | sort -u || true)
  [ -z "$skips" ] || printf 'skipped:\n%s\n' "$skips"
  if [ "$1" = 0 ]; then echo "all checks and tests passed"; else echo "FAILED: see above"; fi
  echo "$passed passed, $failed failed"
  return "$1"
}
