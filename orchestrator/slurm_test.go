package orchestrator

import (
	"errors"
	"strings"
	"testing"
)

// User case 42: a task for each GPU, each of which sees only its own.
func TestUserCase42SeveralTasksOfSlurm(t *testing.T) {
	cases := map[string]struct {
		environ []string
		keep    bool
		says    string // empty: it may start
	}{
		"no Slurm":               {[]string{"PATH=/bin"}, false, ""},
		"sbatch, four tasks":     {[]string{"SLURM_NTASKS=4", "SLURM_PROCID=0"}, false, ""}, // the script itself runs once
		"srun, one task":         {[]string{"SLURM_STEP_NUM_TASKS=1", "SLURM_PROCID=0"}, false, ""},
		"srun, the first of 4":   {[]string{"SLURM_STEP_NUM_TASKS=4", "SLURM_PROCID=0", "CUDA_VISIBLE_DEVICES=0"}, false, "srun --ntasks=1 --gpus-per-node=4"},
		"srun, another one":      {[]string{"SLURM_STEP_NUM_TASKS=4", "SLURM_PROCID=3", "CUDA_VISIBLE_DEVICES=0"}, false, "task 3 of 4"},
		"trainings of their own": {[]string{"SLURM_STEP_NUM_TASKS=4", "SLURM_PROCID=3"}, true, ""},
		"nonsense":               {[]string{"SLURM_STEP_NUM_TASKS=many"}, false, ""},
	}
	for name, c := range cases {
		err := checkSlurm(c.environ, c.keep)
		if c.says == "" && err != nil || c.says != "" && (!errors.Is(err, ErrUsage) || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
