package pickle

import (
	"errors"
	"os"
	"testing"
)

const class = "torch.distributed.checkpoint.filesystem._StorageInfo"

// The file is what torch.distributed.checkpoint.save of PyTorch 2.15 wrote for a Linear(30, 20),
// its AdamW and two numbers.
func written(t testing.TB) []byte {
	t.Helper()
	data, err := os.ReadFile("testdata/checkpoint.metadata")
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestObjects(t *testing.T) {
	found, err := Objects(written(t), class)
	if err != nil || len(found) != 22 {
		t.Fatalf("%d found, %v", len(found), err)
	}
	end := int64(0)
	for _, f := range found {
		if f["relative_path"] != "__0_0.distcp" || f["offset"] != end {
			t.Errorf("%v, and the last one ended at %d", f, end)
		}
		end += f["length"].(int64)
	}
	if end != 37566 {
		t.Errorf("they end at %d, and the file had 37566 bytes", end)
	}
}

func TestWhatIsNoWholePickle(t *testing.T) {
	data := written(t)
	for n := range data {
		want := ErrCut
		if n == 0 {
			want = ErrNot
		}
		if _, err := Objects(data[:n], class); !errors.Is(err, want) {
			t.Errorf("the first %d bytes: %v", n, err)
		}
	}
	if _, err := Objects([]byte("nonsense"), class); !errors.Is(err, ErrNot) {
		t.Errorf("error %v", err)
	}
	if _, err := Objects([]byte("\x80\x04\xff"), class); err == nil || errors.Is(err, ErrNot) || errors.Is(err, ErrCut) {
		t.Errorf("error %v", err)
	}
}

func TestLong(t *testing.T) {
	for text, want := range map[string]any{"": int64(0), "\xff": int64(-1), "\x00\x01": int64(256), "\x00\x00\x00\x00\x01": int64(1) << 32, "123456789": opaque{}} {
		if got := long([]byte(text)); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}

// Whatever is in a file, it is read to an end.
func FuzzObjects(f *testing.F) {
	f.Add(written(f))
	f.Add([]byte("\x80\x04(0u.\x80\x040b"))
	f.Fuzz(func(_ *testing.T, data []byte) { _, _ = Objects(data, class) })
}
