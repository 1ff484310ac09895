"""How mpirun starts ranks in other pods without ssh: through the working directory, which all ranks share. Pure.

| who | does |
|---|---|
| every rank | runs the same command, `"$PORTAL_MPI" mpirun python train.py` |
| rank 0, the launcher | becomes mpirun, configured to call the script in place of ssh |
| the script in place of ssh | writes the host's command into the directory and waits for its end |
| every other rank | runs each command that is written there under its name, until the launcher ends |
The image needs only a shell and coreutils. No process listens and there are no keys: only ranks can write into the working
directory. Tested with Open MPI 4.1 in two pods; Open MPI 5 (PRRTE), MPICH and Intel MPI are configured by the variables that
their manuals give for the agent. `mpirun` by itself and `horovodrun` call ssh, which the image must then have.

Sources: Open MPI FAQ, "Running jobs under rsh/ssh" (plm_rsh_agent); PRRTE plm_ssh_agent; MPICH, Using the Hydra process
manager (HYDRA_LAUNCHER_EXEC); Intel MPI reference (I_MPI_HYDRA_BOOTSTRAP_EXEC).
"""

from __future__ import annotations

TAKEN_WITHIN, NAMED_WITHIN = 60, 40  # s; many DNS servers deny a name for 30 s that was queried too early

SCRIPT = f"""#!/bin/sh
where="$PORTAL_WORKDIR/.mpi/$PORTAL_ATTEMPT"
if [ -n "$PORTAL_MPI_AGENT" ]; then  # mpirun calls: [options] host command
  while [ "${{1#-}}" != "$1" ]; do shift; done
  host=$1; shift
  rm -f "$where/$host.end" "$where/$host.taken"
  printf '%s\\n' "$*" > "$where/$host.new" && mv "$where/$host.new" "$where/$host.command" || exit 1
  waited=0
  until [ -e "$where/$host.taken" ]; do
    if [ $waited -ge {TAKEN_WITHIN * 5} ]; then
      echo "$host does not take its command from $where: is it the same directory for all ranks?" >&2
      exit 1
    fi
    waited=$((waited + 1)); sleep 0.2
  done
  until [ -e "$where/$host.end" ]; do sleep 0.2; done
  exit "$(cat "$where/$host.end")"
fi
mkdir -p "$where" || exit 1
export PORTAL_MPI_AGENT=1
if [ "$PORTAL_RANK" = 0 ]; then  # mpirun takes its own host for another one until the name is known
  waited=0
  while command -v getent && ! getent hosts "${{PORTAL_HOSTS%%:*}}" && [ $waited -lt {NAMED_WITHIN * 5} ]; do
    waited=$((waited + 1)); sleep 0.2
  done > /dev/null
  exec "$@"
fi
trap 'exit 143' TERM
host=$PORTAL_HOSTS rank=0
while [ $rank -lt "$PORTAL_RANK" ]; do host=${{host#*,}} rank=$((rank + 1)); done
host=${{host%%:*}}
while :; do
  until [ -e "$where/$host.command" ]; do sleep 0.2; done
  mv "$where/$host.command" "$where/$host.taken"
  sh "$where/$host.taken"
  echo $? > "$where/$host.done" && mv "$where/$host.done" "$where/$host.end"
done
"""


def variables(script: str, hostfile: str) -> dict[str, str]:
    """The variables that launchers of each make read: their hosts, and the program to call instead of ssh. `script`, `hostfile`:
    paths."""
    return {
        "PORTAL_MPI": script,
        "OMPI_MCA_orte_default_hostfile": hostfile,
        "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
        "OMPI_MCA_plm_rsh_agent": script,
        "OMPI_ALLOW_RUN_AS_ROOT": "1",  # a container's root
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PRTE_MCA_prte_default_hostfile": hostfile,
        "PRTE_MCA_plm_ssh_agent": script,
        "I_MPI_HYDRA_HOST_FILE": hostfile,
        "I_MPI_HYDRA_BOOTSTRAP": "rsh",
        "I_MPI_HYDRA_BOOTSTRAP_EXEC": script,
        "HYDRA_HOST_FILE": hostfile,
        "HYDRA_LAUNCHER": "rsh",
        "HYDRA_LAUNCHER_EXEC": script,
    }
