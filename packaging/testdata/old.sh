#!/bin/bash
# Makes packages as they were before manifests and examples had a directory of their own: old.sh ROOT OUT. ROOT has the files of a package of
# today; in the old one the manifests were documents, the pages were not compressed, and zsh looked in one place everywhere.
set -eu
umask 022
root=$2/root doc=$2/root/usr/share/doc/fenced
mkdir -p "$2"
cp -R --preserve=mode,links "$1" "$root"
rm "$doc/configs"
mv "$root/usr/share/fenced" "$doc/examples"
rm -r "$doc/examples/chart" "$doc/examples/kustomize"
mv "$doc/examples/sbom.cdx.json" "$doc/"
gunzip "$root"/usr/share/man/man[58]/*.gz

cat >"$2/old.spec" <<END
Name: fenced
Version: 0.0.1
Release: 1
Summary: An older layout
License: Apache-2.0
%global __strip /bin/true
%global _build_id_links none
%global __brp_compress /bin/true
%global debug_package %{nil}
%description
For this test alone.
%install
cp -a "$root/." %{buildroot}/
%pre
printf 'u fenced - - /var/lib/fenced\\ng fenced-view -\\n' | systemd-sysusers -
%post
systemctl daemon-reload
%postun
systemctl try-restart fenced.service
%files
%config(noreplace) %attr(0640,root,fenced) /etc/fenced/fenced.yaml
%dir %attr(0750,root,fenced) /etc/fenced
%dir %attr(0750,root,fenced) /etc/fenced/*.d
%dir %attr(0750,root,fenced) /etc/fenced/credentials
%dir %attr(0700,fenced,fenced) /var/lib/fenced
/usr
END
rpmbuild --quiet --define "_topdir $2/build" --define '_binary_payload w1.zstdio' --buildroot "$2/buildroot" -bb "$2/old.spec"
mv "$2"/build/RPMS/*/fenced-0.0.1-1.*.rpm "$2/"

mkdir "$root/DEBIAN"
printf 'Package: fenced\nVersion: 0.0.1\nArchitecture: amd64\nMaintainer: Test <test@fenced.invalid>\nDescription: An older layout\n' >"$root/DEBIAN/control"
echo /etc/fenced/fenced.yaml >"$root/DEBIAN/conffiles"
printf '#!/bin/sh\nset -e\nsystemd-sysusers fenced.conf\nchgrp -R fenced /etc/fenced\nchown fenced:fenced /var/lib/fenced\nsystemctl daemon-reload\n' >"$root/DEBIAN/postinst"
chmod 755 "$root/DEBIAN/postinst"
dpkg-deb --root-owner-group -Znone --build "$root" "$2/old.deb" >/dev/null
rm -r "$root" "$2/build" "$2/old.spec"
