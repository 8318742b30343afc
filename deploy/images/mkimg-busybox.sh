#!/bin/bash
# The smallest sandbox image: Debian's busybox-static, imported from a tar file, no registry involved.
# usage: mkimg-busybox.sh [tag]     (default harness/busybox:1; prints the image id)
# needs: the package busybox-static, tar, and docker (or another engine's client, by CLI=...)
# The tar is sorted, has zero times and numeric root owners, so the layer digest is the same everywhere;
# the image id is not, because the engine writes the creation time into it.
set -euo pipefail

cli=${CLI:-docker}
tag=${1:-harness/busybox:1}
busybox=${BUSYBOX:-/bin/busybox}

case ${tag%%/*} in
  *.* | *:*/* | localhost) echo "mkimg-busybox: a tag may not name a registry host: $tag" >&2; exit 2 ;;
esac
[ -x "$busybox" ] || { echo "mkimg-busybox: $busybox is missing; install busybox-static" >&2; exit 1; }
if [ -n "$(ldd "$busybox" 2>/dev/null | grep -v 'not a dynamic executable' || true)" ]; then
  echo "mkimg-busybox: $busybox is not static; install busybox-static" >&2
  exit 1
fi

root=$(mktemp -d)
trap 'rm -rf "$root" "$root.tar"' EXIT
mkdir -p "$root"/{bin,etc,tmp,proc,sys,dev,workspace}
install -m 755 "$busybox" "$root/bin/busybox"
for applet in $("$busybox" --list); do
  [ "$applet" = busybox ] || ln -s busybox "$root/bin/$applet"
done
printf 'root:x:0:0::/:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n' > "$root/etc/passwd"
printf 'root:x:0:\nnogroup:x:65534:\n' > "$root/etc/group"
chmod -R u=rwX,go=rX "$root"
chmod 1777 "$root/tmp"

tar -C "$root" --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -cf "$root.tar" .

# An image with this very layer and configuration is used again: each import would make another image id.
wanted="sha256:$(sha256sum < "$root.tar" | cut -d' ' -f1) [PATH=/bin] /workspace [/bin/sh]"
shape='{{index .RootFS.Layers 0}} {{.Config.Env}} {{.Config.WorkingDir}} {{.Config.Cmd}}'
if [ "$("$cli" image inspect --format "$shape" "$tag" 2> /dev/null || true)" = "$wanted" ]; then
  "$cli" image inspect --format '{{.Id}}' "$tag"
else
  "$cli" import --change 'ENV PATH=/bin' --change 'WORKDIR /workspace' --change 'CMD ["/bin/sh"]' - "$tag" < "$root.tar"
fi
