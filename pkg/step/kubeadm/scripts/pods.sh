# shellcheck shell=sh
# Static pods of a master. Inputs: M is the kubelet's directory of manifests, K keeps them as kubeadm made them, NAME is the
# endpoint's name, DETOUR another master's address (empty: there is none), PHASE runs a phase of kubeadm with
# CONFIG.

# pids lists the processes of a program, running with which digests they were started. The kernel keeps 15 characters of a name, which another program may share.
pids() {
  for p in /proc/[0-9]*; do
    if read -r n <"$p/comm"; then
      case $1 in "$n"*) w=$(tr '\0' '\n' <"$p/cmdline" | head -n 1); if [ "${w##*/}" = "$1" ]; then echo "$p"; fi ;; esac
    fi
  done 2>/dev/null
  true
}
running() { for p in $(pids "$1"); do tr '\0' '\n' <"$p/environ" | grep '^KUBEXM_DIGEST=' || echo KUBEXM_DIGEST=; done 2>/dev/null; true; }

# lead sends what this machine asks the API server to an address. While its own API server is away, its kubelet would wait
# for that: it wants to replace the mirror of a pod before it starts the pod again.
own='' stopped=''
lead() {
  cp -p /etc/hosts /etc/hosts.kubexm
  while IFS= read -r l || [ -n "$l" ]; do
    case $l in *" $NAME") echo "$1 $NAME";; *) printf '%s\n' "$l";; esac
  done </etc/hosts >/etc/hosts.kubexm
  mv -f /etc/hosts.kubexm /etc/hosts
}
detour() {
  while read -r ip n _; do if [ "$n" = "$NAME" ]; then own=$ip; fi; done </etc/hosts
  if [ -n "$DETOUR" ] && [ -n "$own" ]; then whenever; lead "$DETOUR"; else own=''; fi
}
# ended takes back what must not stay however a script ends: the detour, and a pod that was to be away only until another one is made. Where kubexm is killed, a
# program that tells it anything ends, too.
ended() {
  if [ -n "$stopped" ] && [ ! -e "$M/$stopped.yaml" ] && [ -e "$K/$stopped.yaml" ]; then place "$K/$stopped.yaml" "$M"; fi
  if [ -n "$own" ]; then lead "$own"; copies; fi
}
# whenever a script ends, also by a signal, for which dash does nothing else in the end.
whenever() { trap ended EXIT; trap 'exit 143' HUP INT TERM PIPE; }
# copies turns it in the copies that the kubelet has made meanwhile for pods that it started. They are mounted: they are written in place.
copies() {
  for f in /var/lib/kubelet/pods/*/etc-hosts; do
    if grep -qsxF "$DETOUR $NAME" "$f"; then t=$(sed "s/^$DETOUR $NAME\$/$own $NAME/" "$f"); printf '%s\n' "$t" >"$f"; fi
  done
}

# began is when the youngest process of a name has started, in hundredths of a second since the machine has.
began() {
  m=
  for p in $(pids "$1"); do
    read -r stat 2>/dev/null <"$p/stat" || continue
    # shellcheck disable=SC2086
    set -- ${stat##*) }
    if [ -z "$m" ] || [ "${20}" -gt "$m" ]; then m=${20}; fi
  done
  echo "$m"
}

# deaf tells whether kube-proxy is older than the API server that it asks: it may ask again only after a while, and not hear meanwhile of pods that move.
deaf() { p=$(began kube-proxy); a=$(began kube-apiserver); [ -n "$p" ] && [ -n "$a" ] && [ "$p" -lt "$a" ]; }
hears() { ! deaf; }

# renewed tells whether the process of a pod is younger than the kubelet, which starts pods again when it is of another version. One that has
# run for half a minute has done that.
renewed() {
  k=$(systemctl show -p ExecMainStartTimestampMonotonic kubelet 2>/dev/null) || return 0
  k=${k#*=}
  if [ -z "$k" ] || ! read -r now _ </proc/uptime || [ $((${now%.*} - k / 1000000)) -gt 30 ]; then return 0; fi
  t=$(began "$1")
  [ -z "$t" ] || [ $((t / 100)) -ge $((k / 1000000)) ]
}

place() { cp -p "$1" "$2/.${1##*/}"; mv -f "$2/.${1##*/}" "$2/${1##*/}"; }

# back puts manifests in place again that are in old.
back() { for f in "$K"/old/*.yaml; do if [ -e "$f" ]; then place "$f" "$K"; place "$f" "$M"; fi; done; rm -rf "$K/old"; }

# until_ waits up to $MINUTES for a command to succeed.
MINUTES=2
until_() { i=0; until "$@"; do i=$((i+1)); if [ $i -gt $((MINUTES*300)) ]; then return 1; fi; sleep 0.2; done; }
gone() { [ -z "$(pids "$1")" ]; }
started() { [ "$(running "$1")" = "KUBEXM_DIGEST=$2" ] && [ "$(pids "$1")" != "$3" ]; }

# stop takes a pod away until renew makes it anew: POD.
stop() {
  stopped=$1
  whenever
  rm -f "$M/$1.yaml"
  until_ gone "$1" || { echo "$1 has not ended within $MINUTES minutes" >&2; exit 1; }
}

# renew has kubeadm make the manifest of a pod: POD PHASE. It fails where that changes nothing.
renew() {
  rm -f "$K/.was"; if [ -e "$M/$1.yaml" ]; then cp -p "$M/$1.yaml" "$K/.was"; fi
  eval "$PHASE $2 --config \"\$CONFIG\"" >&2 || exit
  place "$M/$1.yaml" "$K"
  if cmp -s "$M/$1.yaml" "$K/.was"; then rm -f "$K/.was"; return 1; fi
  rm -f "$K/.was"
}

# wait_ waits until a pod was started from its manifest: POD DIGEST WAS.
wait_() { until_ started "$1" "$2" "$3" || { echo "$1 was not started from its manifest within $MINUTES minutes" >&2; exit 1; }; }
