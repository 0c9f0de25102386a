#!/usr/bin/env bash
# Writes which flags programs take, and of which type, to pkg/config/flags: what `kubexm config validate` knows about extraArgs.
#   hack/flags.sh VERSION DIR SOURCES...
# DIR has Linux programs of this machine's architecture: kube-apiserver, kube-controller-manager, kube-scheduler, kubelet, or etcd. SOURCES are
# directories of their modules: help hides deprecated flags, so every name that the sources give a flag is tried on the program itself. It hides
# feature gates that have become GA, too: these follow from the sources, and are marked as unlisted.
set -euo pipefail
export LC_ALL=C
cd "$(dirname "$0")/.."
version=$1 dir=$2
shift 2
names=$(grep -rhE --include='*.go' --exclude='*_test.go' '(Var|VarP|VarPF|Bool|String|StringSlice|Int|Int32|Uint|Duration|Float64|Deprecated|Hidden)\(' "$@" | grep -oE '"[a-z][a-z0-9]*(-[a-z0-9]+)*"' | tr -d '"' | sort -u)
# takes PROGRAM FLAG VALUE
takes() { ! { "$1" "--$2=$3" --help 2>&1 || true; } | grep -q 'invalid argument'; } # which ends before the program has written all
# type PROGRAM FLAG: bool, int, uint, float, duration or text; nothing where there is no such flag.
type() {
	local said
	case $1 in
	*etcd) said=$("$1" "--$2=no value" --version 2>&1 || true) ;;
	*) said=$("$1" "--$2=no value" --help 2>&1 | grep -m1 -E 'unknown flag|invalid argument' || true) ;;
	esac
	case $said in
	*'unknown flag'* | *'not defined'*) ;;
	*ParseBool* | *'invalid boolean'*) echo bool ;;
	*ParseInt* | *Atoi*) # also of lists and ranges of numbers
		if takes "$@" 1,2 || takes "$@" 1-2; then echo text; else echo int; fi
		;;
	*ParseUint*) echo uint ;;
	*ParseFloat*) echo float ;;
	*duration*) echo duration ;;
	*'parse error'*) # of Go's own flags, which do not say what they want
		if "$1" "--$2=5s" --version >/dev/null 2>&1; then
			echo duration
		elif "$1" "--$2=1.5" --version >/dev/null 2>&1; then
			echo float
		elif "$1" "--$2=-1" --version >/dev/null 2>&1; then
			echo int
		else
			echo uint
		fi
		;;
	*) echo text ;;
	esac
}
flags() { # PROGRAM
	{
		"$1" --help 2>&1 | sed -nE 's/^ +(-., )?--([a-z0-9-]+).*/\2/p'
		echo "$names"
	} | sort -u | while read -r name; do
		kind=$(type "$1" "$name")
		[ -z "$kind" ] || echo "$(basename "$1") $name $kind"
	done
}
for program in kube-apiserver kube-controller-manager kube-scheduler kubelet etcd; do
	[ ! -x "$dir/$program" ] || flags "$dir/$program" >"pkg/config/flags/$program-$version.part"
done
for part in pkg/config/flags/*-"$version".part; do
	mv "$part" "${part%.part}.txt"
done
if [ -x "$dir/kube-apiserver" ]; then
	listed=$(for program in kube-apiserver kube-controller-manager kube-scheduler kubelet; do
		"$dir/$program" --help | sed -nE 's/.*\b(kube:)?([A-Z][A-Za-z0-9]+)=true\|false \(.*/\2/p'
	done | sort -u)
	known=$(find "$@" -path '*feature*' -name '*.go' ! -name '*_test.go' -exec grep -hoE '\b([A-Z][A-Za-z0-9]+)( +[a-z.]*Feature)? += +"\1"' {} + | sed -E 's/ .*//' | sort -u)
	{
		echo "$listed"
		comm -13 <(echo "$listed") <(echo "$known") | sed 's/$/ unlisted/'
	} | sort >"pkg/config/flags/gates-$version.txt"
	"$dir/kube-apiserver" --help | sed -nE 's/.*Comma-delimited list of admission plugins: ([A-Za-z, ]+)\..*/\1/p' | tr -d ' ' | tr , '\n' | sort -u >"pkg/config/flags/admission-$version.txt"
fi
