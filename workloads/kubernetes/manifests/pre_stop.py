"""Which processes get SIGTERM when a container ends and its main process is a shell script. Pure.

The kubelet sends SIGTERM to the main process only. A shell dies of it at once, and the container with it: the programs of
the script are killed in the middle of saving. An init program in front of every command would have to be in the image,
and a shell in that role starts every command with SIGINT ignored. So the container is left as it is, and its preStop
hook, which the kubelet runs first and counts as grace, does what an init would do:
1. Shells all of whose ancestors are shells are held (SIGSTOP): they do not go on to the next line.
2. Every program below them gets SIGTERM once, as soon as all its ancestors are held shells. A program passes the signal
on to its own children as it sees fit; those that it leaves behind get SIGTERM then. A process that reads another program's
output (`python train.py | tee log`, or a shell: `| while read line; do …`) ends by itself when that program ends, and
gets SIGTERM only if it does not.
3. When no program is left, the shells get SIGTERM and continue: one with a trap runs it, any other dies with 143, as usual.
A shell with a trap for SIGTERM that waits for background processes gets SIGTERM at once, and its processes are left to it:
`trap 'kill $p; wait $p' TERM; python train.py & p=$!; wait $p` is right as it is. Background processes are recognized by
ignoring SIGQUIT, as their shell makes them do; a shell that ignores SIGQUIT itself is held like any other.
A main process that is not a shell is the only one to get SIGTERM, from the kubelet, as everywhere. An image without `sh` has
no scripts; its hook fails and the kubelet goes on. Other containers of the pod have another root and are left alone.
The embedded cluster follows the same rules: workloads/embedded/supervisor.py, Farewell.
"""

from __future__ import annotations

from typing import Any

HOOK = r"""
held= left= signalled= fed= readers=
is_shell() {
  case $(tr '\0' '\n' < "/proc/$1/cmdline" 2>/dev/null | head -n 1) in
    sh|*/sh|bash|*/bash|dash|*/dash|ash|*/ash|ksh|*/ksh|zsh|*/zsh) return 0 ;;
  esac
  return 1
}
look() {  # state and parent of each process of this container but this one
  all=
  for path in /proc/[0-9]*; do
    pid=${path#/proc/}
    read -r line 2>/dev/null < "$path/stat" || continue
    set -- ${line##*) }
    if [ "$pid" = $$ ] || [ "$2" = $$ ] || [ "$1" = Z ] || ! [ "$path/root/" -ef / ]; then continue; fi
    all="$all $pid:$2"
  done
}
is_top() {  # nothing is above it but held shells
  case $1 in 0|1) return 0 ;; esac
  case " $held " in *" $1 "*) return 0 ;; esac
  return 1
}
has() {  # process, SigCgt or SigIgn, signal
  while read -r key mask rest; do
    if [ "$key" = "$2:" ]; then return $((1 - (0x${mask#????????} >> ($3 - 1) & 1))); fi
  done 2>/dev/null < "/proc/$1/status"
  return 1
}
handles_it() {  # a trap for SIGTERM (bash with one for its exit catches SIGVTALRM, too), and waits in the background only
  has "$1" SigCgt 15 && ! has "$1" SigCgt 26 && ! has "$1" SigIgn 3 || return 1
  waits=
  for child in $all; do
    if [ "${child#*:}" = "$1" ]; then
      has "${child%:*}" SigIgn 3 || return 1
      waits=1
    fi
  done
  [ "$waits" ]
}
writes() {  # process, reader
  [ "/proc/$1/fd/1" -ef "/proc/$2/fd/0" ] || [ "/proc/$1/fd/2" -ef "/proc/$2/fd/0" ]
}
is_below() {  # process, ancestor
  above=$1
  while :; do
    up=
    for one in $all; do
      case $one in "$above:"*) up=${one#*:}; break ;; esac
    done
    if [ -z "$up" ]; then return 1; elif [ "$up" = "$2" ]; then return 0; fi
    above=$up
  done
}
is_reader() {  # of a pipe that something which it did not start writes
  [ -p "/proc/$1/fd/0" ] || return 1
  for other in $all; do
    other=${other%:*}
    if [ "$other" != "$1" ] && writes "$other" "$1" && ! is_below "$other" "$1"; then return 0; fi
  done
  return 1
}
hold() {
  for each in $all; do
    pid=${each%:*}
    case " $held $left $readers " in *" $pid "*) continue ;; esac
    if is_top "${each#*:}" && is_shell "$pid"; then
      if is_reader "$pid"; then readers="$readers $pid"; continue; fi
      kill -STOP "$pid" 2>/dev/null || continue
      more=1
      if handles_it "$pid"; then
        left="$left $pid"
        kill -TERM "$pid" 2>/dev/null
        kill -CONT "$pid" 2>/dev/null
      else
        held="$held $pid"
      fi
    fi
  done
}
is_fed() {
  [ -p "/proc/$1/fd/0" ] || return 1
  for other in $programs; do
    other=${other%:*}
    if [ "$other" != "$1" ] && writes "$other" "$1"; then return 0; fi
  done
  return 1
}
while :; do
  more=1
  while [ "$more" ]; do more=; look; hold; done
  [ "$held$left" ] || exit 0
  programs= still=
  for each in $all; do
    case " $held " in *" ${each%:*} "*) ;; *) programs="$programs $each" ;; esac
  done
  [ "$programs" ] || break
  for each in $programs; do
    pid=${each%:*}
    if is_fed "$pid"; then still="$still $pid"; continue; fi
    case " $left $signalled $fed " in *" $pid "*) continue ;; esac
    if is_top "${each#*:}"; then kill -TERM "$pid" 2>/dev/null; signalled="$signalled $pid"; fi
  done
  fed=$still
  sleep 0.2 2>/dev/null || sleep 1 || break
done
[ "$held" ] || exit 0
kill -TERM $held 2>/dev/null
kill -CONT $held 2>/dev/null
for pid in $held; do
  while read -r line 2>/dev/null < "/proc/$pid/stat"; do
    case ${line##*) } in Z*) break ;; esac
    sleep 0.2 2>/dev/null || sleep 1 || break
  done
done
"""


def hook() -> dict[str, Any]:
    """A container's `lifecycle`."""
    return {"preStop": {"exec": {"command": ["sh", "-c", HOOK]}}}
