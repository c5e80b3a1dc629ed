# Makes rpm's list of files from packaging/files.
/^#/ || !NF || $1 == "deb" { next }
{ attr = "%attr(" $3 "," $4 "," $5 ") " }
$2 == "dir" { print "%dir " attr $6 }
$2 == "file" { print attr $6 }
$2 == "config" { print "%config(noreplace) " attr $6 }
$2 == "license" { print "%license " attr $6 }
$2 == "doc" { print "%doc " $6 }
$2 == "link" || $2 == "tree" { print $6 }
