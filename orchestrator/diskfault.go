package orchestrator

import "strings"

// diskFaults are the ways in which a disk takes no more: the words of each in lower case, and
// what there is to do.
var diskFaults = []struct {
	cause  Cause
	words  []string
	advice string
}{
	{ReadOnly, []string{"read-only file system", "[errno 30]"}, "make the file system writable (one with errors becomes read-only: the kernel's log says so), or save elsewhere"},
	{QuotaUsed, []string{"disk quota exceeded", "[errno 122]"}, "remove files, or have the quota raised"},
	{FileSize, []string{"file too large", "[errno 27]"}, "raise the limit on file sizes (ulimit -f)"},
	{DiskFull, []string{"no space left on device", "[errno 28]"}, "make room"},
}

// diskFault is the cause that an error's text names; empty if it is none of a disk.
func diskFault(text string) Cause {
	for _, fault := range diskFaults {
		for _, word := range fault.words {
			if strings.Contains(text, word) {
				return fault.cause
			}
		}
	}
	return ""
}

// saveAdvice is the cause of a save that failed, as a worker tells it, with what there is to do
// before the script is started again. Whatever is not of a disk is the script's.
func saveAdvice(told string) (Cause, string) {
	for _, fault := range diskFaults {
		if string(fault.cause) == told {
			return fault.cause, fault.advice + ", and start it again"
		}
	}
	return ScriptFault, "mend what the message says, and start it again"
}
