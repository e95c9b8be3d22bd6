package orchestrator

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/cephalorun/cephalorun/orchestrator/pickle"
	"github.com/cephalorun/cephalorun/profiler"
)

const (
	// storedClass says where in its files a part of a checkpoint lies.
	storedClass = "torch.distributed.checkpoint.filesystem._StorageInfo"
	// mostMetadata is how large a metadata file may be to be looked into for a listing.
	mostMetadata = 32 << 20
)

// lacks says what the files of a checkpoint lack of what its metadata names; empty if nothing, and
// if the metadata is of a kind that is not known.
func lacks(dir string, metadata os.FileInfo) string {
	switch {
	case !metadata.Mode().IsRegular():
		return metadataFile + " is not a file"
	case metadata.Size() == 0:
		return metadataFile + " is empty"
	case metadata.Size() > mostMetadata:
		return ""
	}
	data, err := profiler.ReadFile(filepath.Join(dir, metadataFile), mostMetadata)
	if err != nil {
		return fmt.Sprintf("%s cannot be read: %v", metadataFile, err)
	}
	parts, err := pickle.Objects(data, storedClass)
	if errors.Is(err, pickle.ErrCut) || errors.Is(err, pickle.ErrNot) {
		return fmt.Sprintf("%s cannot be read: %v", metadataFile, err)
	}
	if err != nil {
		return ""
	}
	return shortFile(dir, parts)
}

// shortFile names the first file that is missing or ends before the last of its parts.
func shortFile(dir string, parts []pickle.Attributes) string {
	ends := map[string]int64{}
	var names []string
	for _, p := range parts {
		name, _ := p["relative_path"].(string)
		offset, _ := p["offset"].(int64)
		length, _ := p["length"].(int64)
		if filepath.IsLocal(name) {
			if _, seen := ends[name]; !seen {
				names = append(names, name)
			}
			ends[name] = max(ends[name], offset+length)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		info, err := os.Stat(filepath.Join(dir, name))
		switch {
		case err != nil:
			return name + " is missing"
		case !info.Mode().IsRegular():
			return name + " is not a file"
		case info.Size() < ends[name]:
			return fmt.Sprintf("%s has %d of %d bytes", name, info.Size(), ends[name])
		}
	}
	return ""
}
