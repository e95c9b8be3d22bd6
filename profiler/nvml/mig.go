package nvml

import (
	api "github.com/NVIDIA/go-nvml/pkg/nvml"
)

// migMode reports whether the GPU is cut into MIG slices now.
func (c *card) migMode(handle api.Device) (bool, api.Return) {
	if !c.has("nvmlDeviceGetMigMode") {
		return false, api.ERROR_FUNCTION_NOT_FOUND
	}
	current, _, ret := handle.GetMigMode()
	return current == api.DEVICE_MIG_ENABLE, ret
}

// migSlices lists the slices in place of the GPU: the GPU itself cannot be
// opened while it is cut. Memory is the slice's own; utilisation and links are
// not asked for, since slices do not have them.
func (c *card) migSlices(handle api.Device) {
	most, ret := handle.GetMaxMigDeviceCount()
	if ret != api.SUCCESS {
		c.fail("count its MIG slices", ret)
		return
	}
	found := 0
	for i := range most {
		slice, ret := handle.GetMigDeviceHandleByIndex(i)
		if ret != api.SUCCESS {
			continue // places without a slice say ERROR_NOT_FOUND
		}
		if c.migSlice(slice) {
			found++
		}
	}
	if found == 0 {
		c.tell(func() { c.problem = "is in MIG mode but has no slices: make some, or turn MIG off" })
	}
}

func (c *card) migSlice(slice api.Device) bool {
	uuid, ret := slice.GetUUID()
	if ret != api.SUCCESS {
		return false
	}
	name, nameRet := slice.GetName()
	total, free, used, memoryRet := c.memoryInfo(slice)
	c.tell(func() {
		d := c.gpu
		d.UUID, d.MIG = uuid, true
		d.Cores = 0 // of the whole GPU, not of the slice
		if nameRet == api.SUCCESS {
			d.Name = name
		}
		if memoryRet == api.SUCCESS {
			c.provider.setMemory(&d, total, free, used)
		}
		c.slices = append(c.slices, d)
	})
	return true
}
