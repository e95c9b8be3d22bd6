package estimate

import (
	"fmt"

	"github.com/cephalorun/cephalorun/profiler"
	"github.com/cephalorun/cephalorun/profiler/yamlmap"
)

// Model is a model file that was read without problems: a transformer by its
// measures.
type Model struct {
	Name  string
	DType profiler.DType
	// StateBytes is what a parameter keeps for the whole run: 16 with Adam in
	// float32.
	StateBytes float64
	// Sequence is the number of tokens of a sample.
	Sequence int
	Layers   int
	Hidden   int
	Heads    int
	// KVHeads is fewer than Heads where keys and values are shared.
	KVHeads int
	// FeedForward is the inner width; Gated has a third matrix (SwiGLU).
	FeedForward int
	Gated       bool
	// Vocabulary is the rows of the embedding and of the head; 0 has neither.
	Vocabulary int
	// Tied uses one matrix for both.
	Tied      bool
	Positions int
	// Patch is the side of an image patch in pixels, Classes the width of a head
	// on one token.
	Patch, Classes int
}

// mostKept is more than a block keeps of any sample.
const mostKept = 1 << 48

// ReadModel reads a model file.
func ReadModel(path string) (Model, error) {
	data, err := profiler.ReadInput(path, profiler.MostYAMLBytes)
	if err != nil {
		return Model{}, fmt.Errorf("%w: read model file: %w", profiler.ErrInvalid, err)
	}
	return ParseModel(path, data)
}

// ParseModel is ReadModel for the content of a file. What is wrong is reported
// all at once, with field paths, as a ProblemsError.
func ParseModel(source string, data []byte) (Model, error) {
	var problems profiler.ProblemList
	m := yamlmap.Open(data, "name, sequence, layers, hidden, heads and feed_forward", &problems)
	if m == nil {
		return Model{}, problems.Err(source)
	}
	m.Need("sequence", "layers", "hidden", "heads", "feed_forward")
	model := Model{
		Name: m.Text("name", true), DType: profiler.Float32,
		StateBytes:  m.Number("state_bytes_per_parameter", 16, 1, 64),
		Sequence:    m.Whole("sequence", 0, 1, 1<<20),
		Layers:      m.Whole("layers", 0, 1, 1024),
		Hidden:      m.Whole("hidden", 0, 1, 1<<15),
		Heads:       m.Whole("heads", 0, 1, 1<<10),
		KVHeads:     m.Whole("kv_heads", 0, 1, 1<<10),
		FeedForward: m.Whole("feed_forward", 0, 1, 1<<18),
		Gated:       m.Truth("gated"),
		Vocabulary:  m.Whole("vocabulary", 0, 0, 1<<21),
		Tied:        m.Truth("tied"),
		Positions:   m.Whole("positions", 0, 0, 1<<20),
		Patch:       m.Whole("patch", 0, 0, 1<<10),
		Classes:     m.Whole("classes", 0, 0, 1<<21),
	}
	if m.Has("dtype") {
		model.DType = profiler.DType(m.Text("dtype", true))
		if t := model.DType; t != profiler.Float32 && t != profiler.Float16 && t != profiler.BFloat16 {
			m.Problem("dtype", "is %q, must be float32, float16 or bfloat16", t)
		}
	}
	if model.KVHeads == 0 {
		model.KVHeads = model.Heads
	}
	if model.Heads > 0 && model.Hidden%model.Heads != 0 {
		m.Problem("heads", "is %d, which does not divide hidden %d", model.Heads, model.Hidden)
	}
	if model.Heads > 0 && model.KVHeads > 0 && model.Heads%model.KVHeads != 0 {
		m.Problem("kv_heads", "is %d, which does not divide heads %d", model.KVHeads, model.Heads)
	}
	if model.keptBytes() > mostKept {
		m.Problem("sequence", "is %d, and %d heads over so many tokens keep more than 256 TiB a sample", model.Sequence, model.Heads)
	}
	m.RefuseRest()
	return model, problems.Err(source)
}

// blockParameters are those of one block.
func (m Model) blockParameters() int64 {
	h, inner := int64(m.Hidden), int64(m.FeedForward)
	kv := h / int64(m.Heads) * int64(m.KVHeads)
	matrices := 2*h*h + 2*h*kv
	if m.Gated {
		return matrices + 3*h*inner + 2*h
	}
	return matrices + 2*h*inner + 9*h + inner
}

// rootParameters are those of the rest: embedding, head, last norm.
func (m Model) rootParameters() int64 {
	h := int64(m.Hidden)
	n := h*int64(m.Positions) + h*int64(m.Vocabulary) + h*int64(m.Classes) + 3*h*int64(m.Patch)*int64(m.Patch) + 2*h
	if !m.Tied {
		n += h * int64(m.Vocabulary)
	}
	return n
}

// Parameters of the whole model.
func (m Model) Parameters() int64 {
	return int64(m.Layers)*m.blockParameters() + m.rootParameters()
}

// blockOperations of one sample, forward: two for every parameter and token,
// and the products of attention.
func (m Model) blockOperations() float64 {
	s, h := float64(m.Sequence), float64(m.Hidden)
	return 2*float64(m.blockParameters())*s + 4*s*s*h
}

// rootOperations of one sample, forward.
func (m Model) rootOperations() float64 {
	s, h := float64(m.Sequence), float64(m.Hidden)
	return 2*h*s*float64(m.Vocabulary) + 2*h*float64(m.Classes) + 2*h*s*3*float64(m.Patch*m.Patch)
}

// Operations of one sample, forward and backward, nothing twice.
func (m Model) Operations() float64 {
	return 3 * (float64(m.Layers)*m.blockOperations() + m.rootOperations())
}

// width is the bytes of a number in the compute type.
func (m Model) width() float64 {
	if m.DType == profiler.Float32 {
		return 4
	}
	return 2
}

// keptBytes is what a block keeps for its backward pass per sample: 34 bytes a
// token and width, and 5 for every score of attention, at 2 bytes a number
// (Korthikanti et al., Reducing Activation Recomputation in Large Transformer
// Models, arXiv 2205.05198).
func (m Model) keptBytes() float64 {
	s, h, a := float64(m.Sequence), float64(m.Hidden), float64(m.Heads)
	return (34*s*h + 5*a*s*s) * m.width() / 2
}

// inputBytes is the input of a block per sample.
func (m Model) inputBytes() float64 {
	return float64(m.Sequence) * float64(m.Hidden) * m.width()
}
