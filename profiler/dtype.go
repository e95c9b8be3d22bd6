package profiler

// DType is a type that a model can compute in.
type DType string

// The compute types that are told apart.
const (
	Float32  DType = "float32"
	Float16  DType = "float16"
	BFloat16 DType = "bfloat16"
)
