package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"time"

	"github.com/klauspost/cpuid/v2"
	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	clix "neuroprefetcher/cmd/internal/cli"
	"neuroprefetcher/format"
	"neuroprefetcher/format/bundle"
	"neuroprefetcher/kernels"
	"neuroprefetcher/runtime/engine"
	"neuroprefetcher/runtime/measure"
	"neuroprefetcher/runtime/storage"
)

func doctorCommand() *cli.Command {
	return &cli.Command{
		Name:  "doctor",
		Usage: "look at this machine: what will run here, what will run slowly, and what to change",
		Description: "Every line is ok, a hint (it runs, but could run better), or bad (it cannot run). The exit code is 0 unless something is\n" +
			"bad: 3 for a damaged bundle, 4 for one that fits in no mode, 5 for a drive that cannot be read. Nothing is written but,\n" +
			"with --dir, a file of 64 MiB there while the drive is looked at.\n\nExamples:\n" +
			"  nprun doctor\n  nprun doctor -b BUNDLE --memory 6GiB\n  nprun doctor --dir /mnt/nvme --json",
		Flags: []cli.Flag{bundleFlag(),
			&cli.StringFlag{Name: "dir", Usage: "look at the drive under this `DIR`, where there is no bundle yet"},
			&cli.StringFlag{Name: "memory", Usage: "budget that the bundle must fit in, a `SIZE` such as 8GiB", DefaultText: "what container and machine leave"},
			clix.JSONFlag(), clix.QuietFlag()},
		Action: doctor,
	}
}

// The verdicts of a line.
const (
	fine = "ok"
	hint = "hint"
	bad  = "bad"
)

// finding is one line of doctor.
type finding struct {
	Name    string `json:"name"`
	Verdict string `json:"verdict"`
	Text    string `json:"text"`
	Advice  string `json:"advice,omitempty"`
	err     error
}

// examination collects findings.
type examination struct {
	Findings []finding         `json:"findings"`
	Ring     storage.RingState `json:"-"`
	Curve    *measure.Curve    `json:"drive,omitempty"`
	Version  string            `json:"version"`
}

func (x *examination) add(name, verdict, advice, text string, a ...any) {
	if verdict == fine {
		advice = ""
	}
	x.Findings = append(x.Findings, finding{Name: name, Verdict: verdict, Text: fmt.Sprintf(text, a...), Advice: advice})
}

// fail adds what makes running impossible.
func (x *examination) fail(name string, err error) {
	x.Findings = append(x.Findings, finding{Name: name, Verdict: bad, Text: err.Error(), Advice: format.HintOf(err), err: err})
}

func doctor(c *cli.Context) error {
	if err := clix.NoArgs(c); err != nil {
		return err
	}
	dir, in := c.String("bundle"), c.String("dir")
	if dir != "" && in != "" {
		return clix.Usagef("--bundle and --dir exclude each other")
	}
	o := engine.Options{}
	if m := c.String("memory"); m != "" {
		n, err := clix.ParseSize(m)
		if err != nil || n == 0 {
			return clix.Usagef("--memory %s: want a size such as 8GiB", m)
		}
		if dir == "" {
			return clix.Usagef("--memory needs --bundle: it is what the bundle must fit in")
		}
		o.Memory = n
	}
	x := &examination{Version: strings.TrimSpace(clix.Version + " " + clix.Revision())}
	x.processor()
	x.kernel()
	x.ring()
	x.memory()
	switch {
	case dir != "":
		b, err := bundle.Open(dir)
		if err != nil {
			x.fail("bundle", err)
			break
		}
		x.bundle(b, o)
		x.drive(c, b.Path(bundle.MemberRows), b.Manifest.Rows.Stride)
	case in != "":
		x.emptyDir(c, in)
	default:
		x.add("drive", hint, "give -b BUNDLE or --dir DIR", "not looked at")
	}
	var first error
	for _, f := range x.Findings {
		if first == nil {
			first = f.err
		}
	}
	if c.Bool("json") {
		if err := clix.WriteJSON(stdout, x); err != nil {
			return err
		}
		return first
	}
	for _, f := range x.Findings {
		fmt.Fprintf(stdout, "%-5s %-12s %s\n", f.Verdict, f.Name, f.Text)
		if f.Advice != "" {
			fmt.Fprintf(stdout, "%-5s %-12s → %s\n", "", "", f.Advice)
		}
	}
	return first
}

// processor tells the instructions and threads in use.
func (x *examination) processor() {
	name := strings.TrimSpace(cpuid.CPU.BrandName)
	if name == "" {
		name = goruntime.GOARCH
	}
	levels := kernels.Levels()
	text := fmt.Sprintf("%s, %d threads; kernels: %s", name, goruntime.GOMAXPROCS(0), kernels.Level())
	switch best := levels[len(levels)-1]; {
	case kernels.Level() != best:
		x.add("processor", hint, "unset NP_CPU", "%s, though %s is there", text, best)
	case best == "generic":
		x.add("processor", hint, "a processor with AVX2, FMA and F16C (2013 and later) or an arm64 one is many times faster", "%s", text)
	default:
		x.add("processor", fine, "", "%s", text)
	}
	if n, all := goruntime.GOMAXPROCS(0), goruntime.NumCPU(); n < all {
		x.add("threads", hint, "the container's CPU quota or GOMAXPROCS says so; raise it for more speed", "%d of the machine's %d", n, all)
	}
}

func (x *examination) kernel() {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return
	}
	release := unix.ByteSliceToString(u.Release[:])
	var major, minor int
	if _, err := fmt.Sscanf(release, "%d.%d", &major, &minor); err == nil && (major < 6 || major == 6 && minor < 1) {
		x.add("kernel", hint, "6.1 and later have every io_uring feature that is used, and tell the alignment of O_DIRECT", "Linux %s", release)
		return
	}
	x.add("kernel", fine, "", "Linux %s", release)
}

// ring tells of io_uring and of locked memory, which its buffers need.
func (x *examination) ring() {
	s := storage.Inquire()
	x.Ring = s
	if s.Refused != nil {
		x.add("io_uring", hint, s.Advice, "refused (%v); plain reads are used, same tokens", s.Refused)
	} else {
		var has, lacks []string
		for _, f := range []struct {
			name string
			has  bool
		}{{"COOP_TASKRUN", s.CoopTaskrun}, {"SINGLE_ISSUER", s.SingleIssuer}, {"DEFER_TASKRUN", s.DeferTaskrun}} {
			if f.has {
				has = append(has, f.name)
			} else {
				lacks = append(lacks, f.name)
			}
		}
		switch {
		case len(lacks) > 0:
			x.add("io_uring", hint, "a kernel of 6.1 or later has all three", "works; without %s", strings.Join(lacks, ", "))
		default:
			x.add("io_uring", fine, "", "works, with %s", strings.Join(has, ", "))
		}
	}
	soft, hard := storage.LockedLimit()
	limit := func(n int64) string {
		if n < 0 {
			return "unlimited"
		}
		return clix.FormatSize(n)
	}
	switch {
	case s.Refused == nil && s.BuffersLocked != nil:
		x.add("locked memory", hint, "ulimit -l unlimited, or LimitMEMLOCK=infinity in a systemd unit", "limit %s: read buffers cannot be registered (%v)", limit(soft), s.BuffersLocked)
	case soft >= 0 && soft <= 8<<20:
		x.add("locked memory", hint, "ulimit -l unlimited, or LimitMEMLOCK=infinity in a systemd unit: then slots are registered too and reads land in them at less cost", "limit %s (hard %s): staging is registered", limit(soft), limit(hard))
	default:
		x.add("locked memory", fine, "", "limit %s", limit(soft))
	}
}

func (x *examination) memory() {
	h := measure.ReadHost()
	left, source := engine.AvailableMemory()
	x.add("memory", fine, "", "%s, of which %s are available; a run may take %s by itself (%s)", clix.FormatSize(h.MemTotal), clix.FormatSize(h.MemAvailable), clix.FormatSize(left), source)
	switch g := h.Groups; {
	case g.Version == 0:
		x.add("cgroup", fine, "", "none")
	case g.Limit < 0:
		x.add("cgroup", fine, "", "version %d, no limit, %s used (%s)", g.Version, clix.FormatSize(g.Used), g.Path)
	default:
		x.add("cgroup", fine, "", "version %d, limit %s, of which %s are used, page cache included (%s)", g.Version, clix.FormatSize(g.Limit), clix.FormatSize(g.Used), g.Path)
	}
	switch {
	case h.SwapTotal <= 0:
		x.add("swap", fine, "", "none")
	case h.SwapFree < h.SwapTotal-64<<20:
		x.add("swap", hint, "weights that are swapped out come back page by page: MemorySwapMax=0 in a systemd unit, or swapoff", "%s, of which %s are in use", clix.FormatSize(h.SwapTotal), clix.FormatSize(h.SwapTotal-h.SwapFree))
	default:
		x.add("swap", fine, "", "%s, hardly used", clix.FormatSize(h.SwapTotal))
	}
	switch h.HugePages {
	case "always", "madvise":
		x.add("huge pages", fine, "", "%s", h.HugePages)
	case "":
		x.add("huge pages", fine, "", "the kernel has none")
	default:
		x.add("huge pages", hint, "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled: reading weights misses the TLB less", "%s", h.HugePages)
	}
}

// bundle tells which modes fit.
func (x *examination) bundle(b *bundle.Bundle, o engine.Options) {
	m := b.Manifest
	kind := "dense: modes resident and stream"
	if m.Sparse != nil {
		kind = fmt.Sprintf("K_max %d of %d, selectors %s", m.Sparse.KMax, m.Rows.Neurons, strings.Join(m.Sparse.Selectors, ", "))
	}
	x.add("bundle", fine, "", "%s: %s, %d layers, %s", b.Dir, m.Model.ModelType, m.Model.Layers, kind)
	useCalibration(&o, b, false)
	all, chosen, err := engine.Plans(b, o)
	if err != nil {
		x.fail("fit", err)
		return
	}
	var fits, not []string
	for _, p := range all {
		if p.Total <= p.Budget {
			fits = append(fits, p.Mode)
		} else {
			not = append(not, p.Mode)
		}
	}
	text := fmt.Sprintf("%s in a budget of %s; auto takes %s with %s in memory", strings.Join(fits, ", "), clix.FormatSize(chosen.Budget), chosen.Mode, chosen.Held(m.Model.Layers, m.Rows.Neurons))
	if len(not) > 0 {
		text += "; " + strings.Join(not, ", ") + " would need more"
	}
	x.add("fit", fine, "", "%s", text)
}

// drive tells how a file is read, and how fast the drive under it is, as measured before or in two seconds now.
func (x *examination) drive(c *cli.Context, path string, record int) {
	r, err := storage.Open(path, storage.Options{Backend: "auto", Direct: "auto"})
	if err != nil {
		x.fail("drive", err)
		return
	}
	info, size := r.Info(), r.Size()
	r.Close()
	d, err := storage.DriveOf(path)
	if err != nil {
		x.fail("drive", err)
		return
	}
	what := d.Device
	if d.Model != "" {
		what += " (" + d.Model + ")"
	}
	if d.FileSystem != d.Device && d.FileSystem != "" {
		what += ", " + d.FileSystem
	}
	switch {
	case d.FileSystem == "tmpfs" || d.FileSystem == "ramfs":
		x.add("O_DIRECT", hint, "put the bundle on a drive", "%s is memory: rows there cost the memory that they should save", what)
	case !info.Direct:
		x.add("O_DIRECT", hint, "put the bundle on ext4 or xfs on a drive", "refused on %s: reads go through the page cache", what)
	case record > 0 && record%info.Align != 0:
		x.add("O_DIRECT", hint, "npprep repack --record-align 4096 makes records whole blocks", "works on %s in blocks of %d bytes; records of %d bytes are widened to them", what, info.Align, record)
	default:
		x.add("O_DIRECT", fine, "", "works on %s in blocks of %d bytes", what, info.Align)
	}
	if record == 0 {
		record = 24 << 10
	}
	cache, err := cacheDir()
	kept := false
	if err == nil {
		x.Curve, kept = measure.KeptCurve(cache, path)
	}
	if !kept {
		if size < measure.MinFile {
			x.add("drive", fine, "", "not measured: %s is too small to tell a drive from its cache (%s)", filepath.Base(path), clix.FormatSize(size))
			return
		}
		fmt.Fprintln(notes(c), "looking at the drive for two seconds")
		x.Curve, err = measure.Drive(c.Context, path, measure.CurveOptions{Sizes: []int{record, 1 << 20}, Depths: []int{1, 32, 128}, Spell: 100 * time.Millisecond, Record: record,
			Storage: storage.Options{Backend: "auto", Direct: "auto"}}, nil)
		if err != nil {
			x.fail("drive", err)
			return
		}
	}
	source := "looked at for two seconds; nprun bench --drive measures well and keeps it"
	if kept {
		source = "kept from nprun bench --drive"
	}
	small, ok1 := x.Curve.Best(x.Curve.Usual(), record)
	large, ok2 := x.Curve.Best(x.Curve.Usual(), 1<<20)
	if !ok1 || !ok2 {
		x.add("drive", hint, "nprun bench --drive", "no figures")
		return
	}
	text := fmt.Sprintf("%.0f reads/s of %s (%s/s, %d in flight), %s/s in reads of %s; %s", small.PerS, clix.FormatSize(int64(small.Size)), clix.FormatSize(int64(small.BytesPer)), small.Depth,
		clix.FormatSize(int64(large.BytesPer)), clix.FormatSize(int64(large.Size)), source)
	if large.BytesPer < 300e6 {
		x.add("drive", hint, "an NVMe drive reads ten times as much", "%s", text)
		return
	}
	x.add("drive", fine, "", "%s", text)
}

// emptyDir looks at the drive under a folder by a file of its own there.
func (x *examination) emptyDir(c *cli.Context, dir string) {
	if st, err := os.Stat(dir); err != nil || !st.IsDir() {
		x.fail("drive", format.Inputf("--dir %s: not a directory", dir))
		return
	}
	f, err := os.CreateTemp(dir, ".nprun-doctor-*")
	if err != nil {
		if at := (*os.PathError)(nil); errors.As(err, &at) { // without the name of the file
			err = at.Err
		}
		x.add("drive", hint, "give a folder that can be written, or -b BUNDLE", "not looked at: no file can be made in %s: %v", dir, err)
		return
	}
	defer os.Remove(f.Name())
	defer f.Close()
	block := make([]byte, 1<<20)
	for i := range block {
		block[i] = byte(i*2654435761>>7) ^ byte(i)
	}
	for range measure.MinFile >> 20 {
		if err == nil {
			_, err = f.Write(block)
		}
	}
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		x.add("drive", hint, "make room for 64 MiB", "not looked at: %v", err)
		return
	}
	x.drive(c, f.Name(), 0)
}
