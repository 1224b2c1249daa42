package tui

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/remotecommand"
	utilexec "k8s.io/client-go/util/exec"
)

func transferActions() []action {
	return []action{{name: "transfer", help: "copy files from the container or to it, as kubectl cp does", on: []string{"pods", "containers"}, instead: "use kubectl cp there",
		verb: "create", sub: "exec", resource: "pods", writes: true, run: one((*app).askTransfer)}}
}

// transfer copies a file or a folder between a container and this machine, by way
// of tar in the container.
type transfer struct {
	cluster *cluster
	words   words
	of      target // with its container
	far     string // the path in the container
	near    string // the one here
	toPod   bool
	show    *workPane
	began   time.Time

	mu            sync.Mutex // protects the fields below
	name          string     // of the file on its way
	files, others int        // copied, and left out because they are no files
	bytes, total  int64      // total is 0 as long as nobody knows it
}

// askTransfer asks which way, which container and which paths.
func (a *app) askTransfer(t target) {
	down, up := a.words.say("from the container to here"), a.words.say("from here to the container")
	a.choose(a.words.say("transfer")+" "+t.String(), []string{down, up}, func(way string) {
		a.inContainer(t, func(container string) {
			t.container = container
			x := &transfer{cluster: a.cluster, words: a.words, of: t, toPod: way == up}
			here, err := os.Getwd()
			if err != nil {
				here = os.TempDir()
			}
			q := question{title: x.title(), text: []string{way, a.words.say("what is there by that name is replaced"), ""},
				ask: a.words.say("container's path"), also: a.words.say("path here"), value: "/", alsoValue: here + string(filepath.Separator), yes: "OK"}
			q.with = func(far, near string) {
				x.far, x.near = strings.TrimSpace(far), strings.TrimSpace(near)
				a.startTransfer(x)
			}
			a.question(q)
		})
	})
}

func (x *transfer) title() string {
	return x.words.say("transfer") + " " + x.of.String() + ":" + x.of.container
}

// startTransfer copies while a pane tells of it; leaving that ends it.
func (a *app) startTransfer(x *transfer) {
	if rest, ok := strings.CutPrefix(x.near, "~/"); ok {
		if home, err := os.UserHomeDir(); err == nil {
			x.near = filepath.Join(home, rest)
		}
	}
	if x.far == "" || x.near == "" {
		a.fail(errors.New(a.words.say("both paths are needed")))
		return
	}
	ctx, stop := context.WithCancel(a.ctx)
	x.show, x.began = a.newWork(x.title(), stop), time.Now()
	a.push(x.show)
	a.work.Go(func() {
		defer stop()
		err := x.run(ctx)
		x.tell(err, true)
		if err == nil && ctx.Err() == nil {
			a.post(func() { a.note("%s", a.words.say("transferred")) })
		}
	})
}

func (x *transfer) run(ctx context.Context) error {
	done := make(chan struct{})
	defer close(done)
	go func() { // tells how far it is until it is done
		for {
			x.tell(nil, false)
			select {
			case <-done:
				return
			case <-time.After(250 * time.Millisecond):
			}
		}
	}()
	if x.toPod {
		return x.upload(ctx)
	}
	return x.download(ctx)
}

// tell shows how far it is.
func (x *transfer) tell(err error, over bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	from, to := x.of.container+":"+x.far, x.near
	if x.toPod {
		from, to = to, from
	}
	took := time.Since(x.began)
	out := []string{from, "→ " + to, "", x.words.say("%d files   %s   %s/s", x.files, bytesText(x.bytes), bytesText(int64(float64(x.bytes)/max(took.Seconds(), 0.001))))}
	if x.total > 0 && x.bytes <= x.total {
		const wide = 40
		full := int(x.bytes * wide / x.total)
		out = append(out, strings.Repeat("█", full)+strings.Repeat("░", wide-full)+fmt.Sprintf(" %d%%", x.bytes*100/x.total))
	}
	if x.others > 0 {
		out = append(out, x.words.say("%d links and devices are left out", x.others))
	}
	switch {
	case err != nil:
		out = append(out, "", "✗ "+x.words.told(err.Error()))
	case over:
		out = append(out, "", "● "+x.words.say("done in %s", took.Round(100*time.Millisecond)))
	default:
		out = append(out, "", x.name, x.words.say("Esc ends it"))
	}
	x.show.lines.set(out)
}

// next counts a file that begins.
func (x *transfer) next(name string, size int64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.name, x.files = name, x.files+1
	if !x.toPod { // what follows, nobody knows
		x.total = x.bytes + size
		if x.files > 1 {
			x.total = 0
		}
	}
}

func (x *transfer) leaveOut() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.others++
}

// Write implements io.Writer: it counts.
func (x *transfer) Write(p []byte) (int, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.bytes += int64(len(p))
	return len(p), nil
}

// download gets what is at far. A near that is a folder, or ends like one, gets it
// under its own name.
func (x *transfer) download(ctx context.Context) error {
	far := path.Clean(x.far)
	member, name := path.Base(far), path.Base(far)
	folder := path.Dir(far)
	if member == "/" || member == "." || member == ".." {
		folder, member, name = far, ".", x.of.name
	}
	into := x.near
	if info, err := os.Stat(x.near); err != nil && !os.IsPathSeparator(x.near[len(x.near)-1]) || err == nil && !info.IsDir() {
		into, name = filepath.Dir(x.near), filepath.Base(x.near)
	}
	if err := os.MkdirAll(into, 0o777); err != nil {
		return err
	}
	root, err := os.OpenRoot(into) // out of which no name in an archive leads
	if err != nil {
		return err
	}
	defer root.Close()
	r, w := io.Pipe()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.CloseWithError(x.exec(ctx, nil, w, "tar", "cf", "-", "-C", folder, "./"+member))
	}()
	err = x.unpack(root, r, member, name)
	if err == nil { // the end of an archive is not yet that of tar, which may say what went wrong
		_, err = io.Copy(io.Discard, r)
	}
	r.CloseWithError(cmp.Or(err, io.ErrClosedPipe))
	<-ended
	return err
}

// unpack writes the files of an archive, of which member becomes name.
func (x *transfer) unpack(root *os.Root, r io.Reader, member, name string) error {
	archive := tar.NewReader(r)
	for {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		rest, ok := within(path.Clean(h.Name), member)
		to := filepath.Join(name, filepath.FromSlash(rest))
		switch {
		case ok && h.Typeflag == tar.TypeDir:
			err = root.MkdirAll(to, 0o777)
		case ok && h.Typeflag == tar.TypeReg:
			x.next(h.Name, h.Size)
			err = x.save(root, to, h, archive)
		default:
			x.leaveOut()
		}
		if err != nil {
			return err
		}
	}
}

// within is the way from a folder to a path in it.
func within(file, folder string) (string, bool) {
	switch {
	case file == folder:
		return "", true
	case folder == ".":
		return file, true
	}
	return strings.CutPrefix(file, folder+"/")
}

// save writes one file, which is only there under its name once it is whole.
func (x *transfer) save(root *os.Root, to string, h *tar.Header, content io.Reader) error {
	if err := root.MkdirAll(filepath.Dir(to), 0o777); err != nil {
		return err
	}
	part := to + ".part"
	f, err := root.OpenFile(part, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, h.FileInfo().Mode().Perm()|0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, io.TeeReader(content, x))
	if err := errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, root.Remove(part))
	}
	return errors.Join(root.Rename(part, to), root.Chtimes(to, h.ModTime, h.ModTime))
}

// upload puts what is near at far. A far that is a folder, or ends like one, gets
// it under its own name.
func (x *transfer) upload(ctx context.Context) error {
	near, err := filepath.Abs(x.near)
	if err != nil {
		return err
	}
	if x.total, err = sizeOf(near); err != nil {
		return err
	}
	folder, name := path.Dir(path.Clean(x.far)), path.Base(path.Clean(x.far))
	isFolder := strings.HasSuffix(x.far, "/")
	if !isFolder {
		var code utilexec.CodeExitError
		err := x.exec(ctx, nil, io.Discard, "test", "-d", x.far)
		if isFolder = err == nil; err != nil && !errors.As(err, &code) {
			return err
		}
	}
	if isFolder {
		folder, name = path.Clean(x.far), filepath.Base(near)
	}
	r, w := io.Pipe()
	packed := make(chan error, 1)
	go func() {
		err := x.pack(w, near, name)
		w.CloseWithError(err)
		packed <- err
	}()
	err = x.exec(ctx, r, io.Discard, "tar", "xmf", "-", "-C", folder)
	r.CloseWithError(cmp.Or(err, io.ErrClosedPipe)) // so that nobody waits to be read
	if unread := <-packed; err == nil {
		err = unread
	}
	return err
}

func sizeOf(file string) (n int64, err error) {
	return n, filepath.WalkDir(file, func(_ string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err == nil && info.Mode().IsRegular() {
			n += info.Size()
		}
		return err
	})
}

// pack writes a file or a folder as an archive, under another name.
func (x *transfer) pack(w io.Writer, file, name string) error {
	archive := tar.NewWriter(w)
	err := filepath.WalkDir(file, func(at string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := os.Lstat(at)
		if at == file { // a link that is named is meant itself
			info, err = os.Stat(at)
		}
		if err != nil {
			return err
		}
		if !info.IsDir() && !info.Mode().IsRegular() {
			x.leaveOut()
			return nil
		}
		rest, err := filepath.Rel(file, at)
		if err != nil {
			return err
		}
		h := &tar.Header{Name: path.Join(name, filepath.ToSlash(rest)), Mode: int64(info.Mode().Perm()), ModTime: info.ModTime().Truncate(time.Second), Format: tar.FormatGNU}
		if info.IsDir() {
			h.Typeflag, h.Name = tar.TypeDir, h.Name+"/"
			return archive.WriteHeader(h)
		}
		h.Typeflag, h.Size = tar.TypeReg, info.Size()
		return x.packFile(archive, at, h)
	})
	if err != nil {
		return err
	}
	return archive.Close()
}

func (x *transfer) packFile(archive *tar.Writer, file string, h *tar.Header) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	x.next(h.Name, h.Size)
	if err := archive.WriteHeader(h); err != nil {
		return err
	}
	_, err = io.CopyN(archive, io.TeeReader(f, x), h.Size) // it may grow meanwhile
	return err
}

// noProgram is how runtimes say that an image has not what was to be run.
var noProgram = regexp.MustCompile(`(?i)executable file not found|no such file or directory: unknown|not found in \$PATH|command not found`)

// exec runs a command in the container. What goes wrong is told as the command
// tells it.
func (x *transfer) exec(ctx context.Context, in io.Reader, out io.Writer, command ...string) error {
	executor, err := x.cluster.exec(x.of, "exec", &corev1.PodExecOptions{Container: x.of.container, Command: command, Stdin: in != nil, Stdout: true, Stderr: true})
	if err != nil {
		return err
	}
	var said bytes.Buffer
	err = executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: in, Stdout: out, Stderr: &said})
	if err == nil {
		return nil
	}
	var code utilexec.CodeExitError
	text := strings.TrimSpace(said.String())
	switch ended := errors.As(err, &code); {
	case noProgram.MatchString(text + err.Error()), ended && code.Code == 127:
		return errors.New(x.words.say("the image has no %s, which copying needs; a debug container may have it", command[0]))
	case text != "":
		return fmt.Errorf("%s: %w", text, err)
	}
	return err
}
