package nodeagent

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	crilogs "k8s.io/cri-client/pkg/logs"
)

const (
	// settle is how long a log that was rotated has to be quiet before it counts
	// as ended: the runtime makes the new file before it lets go of the old one.
	settle = time.Second
	// look is how often a log is looked at when nothing tells that it changed.
	look = settle / 2
)

// followLog writes a container's log, and what comes to it for as long as the
// container runs. crilogs.ReadLogs would leave a rotated file as soon as there is
// a new one, with lines still to come, and pass over those that are rotated
// while its reader is busy.
func followLog(ctx context.Context, path string, runs func(context.Context) bool, opts *crilogs.LogOptions, stdout, stderr io.Writer) error {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return err
	}
	defer watcher.Close()
	if err := watcher.Add(filepath.Dir(path)); err != nil {
		return err
	}
	t := &logTail{path: path, opts: opts, stdout: stdout, stderr: stderr, room: math.MaxInt64, whole: true}
	if opts.LimitBytes != nil {
		t.room = *opts.LimitBytes
	}
	if err := t.begin(); err != nil {
		return err
	}
	defer func() { t.file.Close() }()

	running, quiet := true, time.Now()
	for ctx.Err() == nil {
		some, err := t.drain()
		if err != nil || t.room <= 0 {
			return err
		}
		if some {
			quiet = time.Now()
		}
		switch {
		case t.rotated() && (!running || time.Since(quiet) >= settle) && t.next():
			quiet = time.Now()
			continue
		case !running:
			return nil
		}
		if running = runs(ctx); !running {
			continue // to what it wrote last
		}
		select {
		case <-ctx.Done():
		case <-watcher.Events:
		case <-watcher.Errors: // of events that were too many: what there is to read is looked for anyway
		case <-time.After(look):
		}
	}
	return nil
}

// logTail is a place in a container's log, which may be in several files.
type logTail struct {
	path           string
	opts           *crilogs.LogOptions
	stdout, stderr io.Writer

	file  *os.File
	in    *bufio.Reader
	half  []byte    // of a line whose end is not yet there
	last  time.Time // of all lines so far, or when the first file was opened
	whole bool      // the line before is complete
	room  int64     // bytes that may still be written

	pending []byte // not yet written, to stderr or stdout
	toErr   bool
}

// begin opens the log at the first of the lines that are wanted.
func (t *logTail) begin() error {
	t.last = time.Now()
	if err := t.open(t.path); err != nil || t.opts.TailLines == nil {
		return err
	}
	start, err := tailStart(t.file, *t.opts.TailLines)
	if err == nil {
		_, err = t.file.Seek(start, io.SeekStart)
	}
	return err
}

func (t *logTail) open(name string) error {
	file, in, err := openLog(name)
	if err != nil {
		return err
	}
	if t.file != nil {
		t.file.Close()
	}
	t.file, t.in, t.half = file, in, nil
	return nil
}

// drain writes what is there of the current file, and tells whether that was anything.
func (t *logTail) drain() (some bool, err error) {
	for t.room > 0 && err == nil {
		var line []byte
		line, err = t.in.ReadBytes('\n')
		some = some || len(line) > 0
		t.half = append(t.half, line...)
		if err == nil {
			err = t.add(t.half)
			t.half = t.half[:0]
		}
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = t.flush()
	}
	return some, err
}

// add takes one line of the file, "TIME STREAM TAGS TEXT", to be written.
func (t *logTail) add(line []byte) error {
	at, rest, ok := cutTime(line)
	if !ok {
		return nil
	}
	stream, rest, _ := bytes.Cut(rest, []byte(" "))
	tags, text, _ := bytes.Cut(rest, []byte(" "))
	tag, _, _ := bytes.Cut(tags, []byte(runtimeapi.LogTagDelimiter))
	partial := string(tag) == string(runtimeapi.LogTagPartial)
	if at.After(t.last) {
		t.last = at
	}
	if at.Before(t.opts.Since) {
		return nil
	}
	if partial {
		text = bytes.TrimSuffix(text, []byte("\n"))
	}
	if t.opts.Timestamp && t.whole {
		text = append([]byte(at.Format(crilogs.RFC3339NanoFixed)+" "), text...)
	}
	t.whole = !partial
	text = text[:min(int64(len(text)), t.room)]
	t.room -= int64(len(text))
	if toErr := string(stream) == string(runtimeapi.Stderr); toErr != t.toErr || len(t.pending) > 32<<10 {
		if err := t.flush(); err != nil {
			return err
		}
		t.toErr = toErr
	}
	t.pending = append(t.pending, text...)
	return nil
}

// flush writes what was put together: each write costs whoever reads a chunk.
func (t *logTail) flush() error {
	if len(t.pending) == 0 {
		return nil
	}
	out := t.stdout
	if t.toErr {
		out = t.stderr
	}
	_, err := out.Write(t.pending)
	t.pending = t.pending[:0]
	return err
}

// rotated tells whether the current file is no longer the one that is written to.
func (t *logTail) rotated() bool {
	mine, err := t.file.Stat()
	if err != nil {
		return true
	}
	newest, err := os.Stat(t.path)
	return err != nil || !os.SameFile(mine, newest)
}

// next goes on to the file after the current one: the oldest that begins after
// its last line, or else the newest. If a file goes away meanwhile, since it is
// being compressed, there is none for now.
func (t *logTail) next() bool {
	files, err := filepath.Glob(t.path + ".*")
	if err != nil {
		return false
	}
	mine, err := t.file.Stat()
	if err != nil {
		return false
	}
	slices.Sort(files)
	next := t.path
	for _, name := range slices.Backward(files) {
		if strings.HasSuffix(name, ".tmp") {
			continue
		}
		info, err := os.Stat(name)
		if err != nil {
			return false
		}
		if os.SameFile(info, mine) {
			break
		}
		begins, err := firstTime(name)
		if err != nil {
			return false
		}
		if !begins.After(t.last) {
			break
		}
		next = name
	}
	return t.open(next) == nil
}

// openLog opens one file of a log, which may be compressed.
func openLog(name string) (*os.File, *bufio.Reader, error) {
	f, err := os.Open(name)
	if err != nil || !strings.HasSuffix(name, ".gz") {
		return f, bufio.NewReaderSize(f, 32<<10), err
	}
	z, err := gzip.NewReader(f)
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, bufio.NewReaderSize(z, 32<<10), nil
}

// firstTime is the time of a file's first line.
func firstTime(name string) (time.Time, error) {
	f, in, err := openLog(name)
	if err != nil {
		return time.Time{}, err
	}
	defer f.Close()
	line, err := in.ReadBytes('\n')
	at, _, _ := cutTime(line)
	return at, err
}

func cutTime(line []byte) (at time.Time, rest []byte, ok bool) {
	word, rest, ok := bytes.Cut(line, []byte(" "))
	at, err := time.Parse(time.RFC3339Nano, string(word))
	return at, rest, ok && err == nil
}

// tailStart is where the last lines of a file begin. Half a line at its end is
// none of them: it comes when it is whole.
func tailStart(f *os.File, lines int64) (int64, error) {
	end, err := f.Seek(0, io.SeekEnd)
	block := make([]byte, 32<<10)
	for err == nil && end > 0 {
		n := min(end, int64(len(block)))
		end -= n
		if _, err := f.ReadAt(block[:n], end); err != nil {
			return 0, err
		}
		for i := n - 1; i >= 0; i-- {
			if block[i] != '\n' {
				continue
			}
			if lines == 0 {
				return end + i + 1, nil
			}
			lines--
		}
	}
	return 0, err
}
