#!/usr/bin/env bash
# Files of at most 600 lines, functions of at most 80 (the aim is 400 and 40). A function is what stands between
# a line that opens a brace and the closing brace, both in column one, as clang-format lays them out.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
git ls-files '*.cpp' '*.h' '*.sh' 'dev' '*.py' | xargs awk '
  FNR == 1 { if (file && lines > 600) { printf "%s: %d lines, at most 600\n", file, lines; bad = 1 }; file = FILENAME; start = 0 }
  { lines = FNR }
  FILENAME !~ /\.(cpp|h)$/ { next }
  /^[^ \t\/#}].*\{$/ && !/^(namespace|struct|class|enum|union|extern|constexpr|const|static const|std::array)/ { start = FNR; head = $0 }
  /^TEST_CASE/ { start = 0 }
  /^}/ { if (start && FNR - start > 80) { printf "%s:%d: function of %d lines, at most 80: %s\n", FILENAME, start, FNR - start, head; bad = 1 }; start = 0 }
  END { if (lines > 600) { printf "%s: %d lines, at most 600\n", file, lines; bad = 1 }; exit bad }'
