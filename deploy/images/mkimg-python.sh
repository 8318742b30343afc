#!/bin/bash
# A sandbox image with Debian's own python3 and the official Python SDK of the Model Context Protocol: the files of the
# installed packages and a virtual environment's site-packages, imported from a tar file, no registry involved.
# usage: mkimg-python.sh [tag]      (default harness/python-mcp:1; prints the image id)
# needs: Debian with python3, python3-venv and busybox-static; a package index once, then only the cache; docker (CLI=...)
set -euo pipefail

cli=${CLI:-docker}
tag=${1:-harness/python-mcp:1}
sdk=mcp==2.3.0
cache=${HARNESS_CACHE:-/var/cache/harness}/python-${sdk/==/-}
packages=(python3-minimal libpython3-stdlib libgcc-s1 libstdc++6)

fail() { echo "mkimg-python: $*" >&2; exit 1; }
case ${tag%%/*} in
  *.* | *:*/* | localhost) fail "a tag may not name a registry host: $tag" ;;
esac
[ -x /bin/busybox ] || fail "/bin/busybox is missing; install busybox-static"
/usr/bin/python3 -c 'import venv, ensurepip' 2> /dev/null || fail "install python3 and python3-venv"

# The SDK, once: made beside its place and moved there whole.
if [ ! -e "$cache/done" ]; then
  mkdir -p "$(dirname "$cache")"
  fresh=$(mktemp -d "$cache.XXXXXX")
  /usr/bin/python3 -m venv "$fresh/venv"
  "$fresh/venv/bin/pip" install -q --disable-pip-version-check --only-binary :all: "$sdk"
  find "$fresh/venv" -name __pycache__ -prune -exec rm -rf {} +
  rm -rf "$fresh"/venv/lib/python3*/site-packages/{pip,pip-*,setuptools,setuptools-*,pkg_resources,_distutils_hack,distutils-precedence.pth}
  touch "$fresh/done"
  rm -rf "$cache"
  mv "$fresh" "$cache"
fi

# The packages and what they need, as dpkg knows them.
depends() {
  apt-cache depends --recurse --installed --no-recommends --no-suggests --no-conflicts --no-breaks \
    --no-replaces --no-enhances "$@" | grep -E '^[a-z0-9]' | sort -u
}
mapfile -t wanted < <(depends "${packages[@]}" \
  | while read -r name; do if dpkg -s "$name" > /dev/null 2>&1; then echo "$name"; fi; done)
[ "${#wanted[@]}" -gt 0 ] || fail "apt knows no packages; run apt-get update"

root=$(mktemp -d)
trap 'rm -rf "$root" "$root.tar"' EXIT
mkdir -p "$root"/{usr/bin,usr/sbin,usr/lib,usr/lib64,etc,tmp,proc,sys,dev,workspace,opt}
ln -s usr/bin usr/sbin usr/lib usr/lib64 "$root/"
dpkg -L "${wanted[@]}" | sed -nE 's#^/((bin|sbin|lib|lib64)/.*)#usr/\1#p; s#^/(usr/(bin|lib|lib64)/.*)#\1#p' | sort -u \
  | grep -E '/(python3[^/]*|lib[^/]*\.so[^/]*|ld-linux[^/]*)$|^usr/lib/python3' \
  | while IFS= read -r file; do
      if [ -L "/$file" ] || [ -f "/$file" ]; then printf '%s\0' "$file"; fi
    done \
  | tar -C / --null --no-recursion -T - --mode='ug-s' -cf - | tar -C "$root" -xf -
install -m 755 /bin/busybox "$root/usr/bin/busybox"
for applet in sh cat ls sleep true env; do ln -s busybox "$root/usr/bin/$applet"; done
# Where Debian's python3 looks without being told.
minor=$(/usr/bin/python3 -c 'import sys; print(sys.version_info.minor)')
mkdir -p "$root/usr/local/lib/python3.$minor"
cp -a "$cache/venv/lib/python3.$minor/site-packages" "$root/usr/local/lib/python3.$minor/dist-packages"
# The file system is read-only where it runs, and times are zero: compiled here, and valid whatever the time says.
/usr/bin/python3 -m compileall -q -j 0 --invalidation-mode unchecked-hash -s "$root" -p / \
  "$root/usr/lib/python3.$minor" "$root/usr/local/lib/python3.$minor/dist-packages" > /dev/null \
  || fail "the libraries do not compile"
printf 'root:x:0:0::/:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n' > "$root/etc/passwd"
printf 'root:x:0:\nnogroup:x:65534:\n' > "$root/etc/group"
chmod -R u=rwX,go=rX "$root"
chmod 1777 "$root/tmp"

tar -C "$root" --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -cf "$root.tar" .

# An image with this very layer and configuration is used again: each import would make another image id.
wanted="sha256:$(sha256sum < "$root.tar" | cut -d' ' -f1) [PATH=/usr/bin] /workspace [/usr/bin/python3]"
shape='{{index .RootFS.Layers 0}} {{.Config.Env}} {{.Config.WorkingDir}} {{.Config.Cmd}}'
if [ "$("$cli" image inspect --format "$shape" "$tag" 2> /dev/null || true)" = "$wanted" ]; then
  "$cli" image inspect --format '{{.Id}}' "$tag"
else
  "$cli" import --change 'ENV PATH=/usr/bin' --change 'WORKDIR /workspace' \
    --change 'CMD ["/usr/bin/python3"]' - "$tag" < "$root.tar"
fi
