#!/usr/bin/env bash
# Brings a Debian machine with the Rust toolchain to where the demo runs: a C compiler, a Docker Engine and the parts of the
# sandbox image; with `tests` also to where they do: Podman, Git, and an image with Python and a tool server's SDK. It
# installs only what is missing and changes nothing else.
# usage: setup.sh [demo|tests]
set -euo pipefail
cd "$(dirname "$0")/.."

purpose=${1:-demo}
case $purpose in demo | tests) ;; *) echo "usage: setup.sh [demo|tests]" >&2; exit 2 ;; esac

say() { printf 'setup: %s\n' "$*"; }
fail() { printf 'setup: %s\n' "$*" >&2; exit 1; }

packages=()
command -v cc > /dev/null && [ -n "$(cc -print-file-name=libc.a | grep /)" ] || packages+=(gcc libc6-dev)
command -v setpriv > /dev/null || packages+=(util-linux)
command -v ss > /dev/null || packages+=(iproute2)
[ -x /bin/busybox ] && /bin/busybox --list 2> /dev/null | grep -qx nc && ! ldd /bin/busybox > /dev/null 2>&1 \
  || packages+=(busybox-static)
command -v docker > /dev/null || packages+=(docker.io)
if [ "$purpose" = tests ]; then
  /usr/bin/python3 -c 'import venv, ensurepip' 2> /dev/null || packages+=(python3 python3-venv)
  command -v git > /dev/null || packages+=(git)
  command -v podman > /dev/null || packages+=(podman)
fi
if [ ${#packages[@]} -gt 0 ]; then
  [ "$(id -u)" = 0 ] || fail "missing: ${packages[*]}; run as root once, or: apt-get install ${packages[*]}"
  say "installing ${packages[*]}"
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq
  apt-get install -y -qq --no-install-recommends "${packages[@]}" > /dev/null
fi
command -v cargo > /dev/null || fail "cargo is missing; install the Rust toolchain named in Cargo.toml (rust-version)"

engine_answers() { timeout 20 docker info > /dev/null 2>&1; }
if ! engine_answers; then
  [ "$(id -u)" = 0 ] || fail "no Docker Engine answers; start it, or run as root"
  say "starting the Docker Engine"
  if [ -d /run/systemd/system ]; then systemctl start docker
  elif ! service docker start > /dev/null 2>&1; then
    setsid dockerd > /var/log/dockerd.log 2>&1 < /dev/null &
  fi
  for _ in $(seq 60); do engine_answers && break; sleep 1; done
  engine_answers || fail "the Docker Engine does not answer after 60 s; see /var/log/dockerd.log or: service docker status"
fi

image=$(deploy/images/mkimg-busybox.sh)
say "sandbox image $image"
if [ "$purpose" = tests ]; then
  # Warm this takes some seconds; the first time it fetches the SDK from the package index.
  image=$(deploy/images/mkimg-python.sh)
  say "image with python and a tool server's SDK $image"
fi
