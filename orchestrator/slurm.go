package orchestrator

import (
	"strconv"
	"strings"
)

// checkSlurm refuses a start as one of several tasks of a Slurm step: each of them would
// train all by itself, on the GPUs that Slurm bound to its task, and all would write the
// same checkpoints. The ranks are started by us.
func checkSlurm(environ []string, keep bool) error {
	value := func(name string) string {
		for _, entry := range environ {
			if n, v, _ := strings.Cut(entry, "="); n == name {
				return v
			}
		}
		return ""
	}
	tasks, err := strconv.Atoi(value("SLURM_STEP_NUM_TASKS"))
	if keep || err != nil || tasks < 2 {
		return nil // no step, as in a batch script or an allocation's shell
	}
	if task := value("SLURM_PROCID"); task != "0" {
		return usage("task %s of %d was started by Slurm; task 0 says what to do", task, tasks)
	}
	return usage("Slurm has started %d tasks of this command, and each would train by itself on the GPUs that it sees. "+
		"Start one for a host, which starts a rank for each GPU: srun --ntasks=1 --gpus-per-node=%d. "+
		"If each task is to be a training of its own, give --keep-slurm-env", tasks, tasks)
}
