# Debian packages, installed only when missing. Sourced by ./dev.

REQUIRED_PACKAGES=(g++ cmake ninja-build llvm-19-dev lld-19 libfmt-dev nlohmann-json3-dev libcli11-dev doctest-dev
  libexpected-dev zlib1g-dev libzstd-dev bible-kjv bible-kjv-text)
# What tests use when it is there; without it they are skipped by name.
OPTIONAL_PACKAGES=(clang-format-19 python3-torch libopenblas0-pthread)

missing_packages() {
  local package
  for package in "$@"; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || echo "$package"
  done
}

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

setup_packages() {
  local missing
  mapfile -t missing < <(missing_packages "$@")
  [ "${#missing[@]}" = 0 ] && return 0
  echo "installing: ${missing[*]}"
  as_root env DEBIAN_FRONTEND=noninteractive apt-get update -qq
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

setup_optional_packages() {
  setup_packages "$@" || echo "skipped: could not install $*"
}
