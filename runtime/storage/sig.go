package storage

type Batch struct {
	Items   []Item // ascending Off
	Done    []bool // len ≥ len(Items): item i is placed
	InPlace bool   // reads may land straight in Dst where everything is aligned; Dst of a failed item is then undefined
	Err     error
}

type Reader struct{}

func Open(path string, o Options) (*Reader, error) { panic("not yet") }
func (r *Reader) Info() Info                       { panic("not yet") }
func (r *Reader) Close() error                     { panic("not yet") }
func (r *Reader) Submit(b *Batch)                  { panic("not yet") }
func (r *Reader) Wait(b *Batch) error              { panic("not yet") }
func (r *Reader) Stats() Stats                     { panic("not yet") }

// AllocAligned returns n bytes of page-aligned anonymous memory and the function that releases it.
func AllocAligned(n int) ([]byte, func(), error) { panic("not yet") }

// Drive describes the block device under a path.
type Drive struct {
	Device        string // kernel name, "nvme0n1"; the file system's type where there is no device ("tmpfs")
	Model         string // as the drive reports it, may be empty
	Rotational    bool
	LogicalBlock  int // bytes; 0 unknown
	PhysicalBlock int // bytes; 0 unknown
}

// DriveOf finds the drive that holds path.
func DriveOf(path string) (Drive, error) { panic("not yet") }
