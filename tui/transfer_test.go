package tui

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gdamore/tcell/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/remotecommand"
	utilexec "k8s.io/client-go/util/exec"
)

// here runs what is to be run in a container on this machine.
type here struct{ command []string }

func (h here) Stream(o remotecommand.StreamOptions) error {
	return h.StreamWithContext(context.Background(), o)
}

func (h here) StreamWithContext(ctx context.Context, o remotecommand.StreamOptions) error {
	cmd := exec.CommandContext(ctx, h.command[0], h.command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = o.Stdin, o.Stdout, o.Stderr
	err := cmd.Run()
	var ended *exec.ExitError
	if errors.As(err, &ended) {
		return utilexec.CodeExitError{Err: err, Code: ended.ExitCode()}
	}
	return err
}

func hereInstead(_ target, _ string, options any) (remotecommand.Executor, error) {
	return here{options.(*corev1.PodExecOptions).Command}, nil
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestTransfersAreWhatCpDoes(t *testing.T) {
	if _, err := exec.LookPath("tar"); err != nil {
		t.Skip("there is no tar")
	}
	for _, c := range []struct {
		name, from, to, want string
		toPod                bool
	}{
		{"a file into a folder", "tree/one", "", "one", false},
		{"a file under another name", "tree/one", "renamed", "renamed", false},
		{"a file over one that is there", "tree/one", "taken", "taken", false},
		{"a folder into a new one", "tree", "new/", "new/tree/one new/tree/sub/-two new/tree/" + strings.Repeat("n", 150), false},
		{"a folder under another name", "tree", "other", "other/one other/sub/-two other/" + strings.Repeat("n", 150), false},
		{"all", ".", "", "001/tree/one", false},
		{"up: a file into a folder", "tree/one", "", "one", true},
		{"up: a file under another name", "tree/one", "renamed", "renamed", true},
		{"up: a folder", "tree", "", "tree/one tree/sub/-two tree/" + strings.Repeat("n", 150), true},
		{"up: a folder under another name", "tree/", "other", "other/one other/sub/-two", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			from, to := t.TempDir(), t.TempDir()
			write(t, filepath.Join(from, "tree", "one"), "1")
			write(t, filepath.Join(from, "tree", "sub", "-two"), "1")
			write(t, filepath.Join(from, "tree", strings.Repeat("n", 150)), "1")
			write(t, filepath.Join(to, "taken"), "before")
			if err := os.Symlink("/etc/passwd", filepath.Join(from, "tree", "link")); err != nil {
				t.Fatal(err)
			}
			x := &transfer{cluster: &cluster{exec: hereInstead}, of: target{name: "pod", container: "c"}, toPod: c.toPod, far: from + "/" + c.from, near: to + "/" + c.to}
			do := x.download
			if c.toPod {
				x.near, x.far, do = from+"/"+c.from, to+"/"+c.to, x.upload
			}
			if err := do(t.Context()); err != nil {
				t.Fatal(err)
			}
			for name := range strings.FieldsSeq(c.want) {
				if data, err := os.ReadFile(filepath.Join(to, name)); err != nil || string(data) != "1" {
					t.Errorf("%s: %q, %v", name, data, err)
				}
			}
			if strings.Contains(c.from, "tree/") && !strings.HasSuffix(c.from, "/") {
				return
			}
			if x.others != 1 || x.files < 3 {
				t.Errorf("%d files, and %d left out", x.files, x.others)
			}
		})
	}
}

func TestTransfersTellWhatIsWrong(t *testing.T) {
	folder := t.TempDir()
	write(t, filepath.Join(folder, "file"), "1")
	failing := func(err error, says string) func(target, string, any) (remotecommand.Executor, error) {
		return func(_ target, _ string, o any) (remotecommand.Executor, error) { return failure{err, says}, nil }
	}
	none := errors.New(`OCI runtime exec failed: exec failed: unable to start container process: exec: "tar": executable file not found in $PATH: unknown`)
	for _, c := range []struct {
		name  string
		exec  func(target, string, any) (remotecommand.Executor, error)
		toPod bool
		want  string
	}{
		{"no tar", failing(none, ""), false, "the image has no tar"},
		{"no tar for going up", failing(none, ""), true, "the image has no"},
		{"no tar in a shell's words", failing(utilexec.CodeExitError{Err: errors.New("exit"), Code: 127}, "sh: tar: not found"), false, "the image has no tar"},
		{"no file", failing(utilexec.CodeExitError{Err: errors.New("exit code 1"), Code: 1}, "tar: ./x: No such file or directory"), false, "tar: ./x: No such file or directory: exit code 1"},
		{"refused", failing(errors.New("pods/exec is forbidden"), ""), true, "pods/exec is forbidden"},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := &transfer{cluster: &cluster{exec: c.exec}, toPod: c.toPod, far: "/x", near: filepath.Join(folder, "file")}
			do := x.download
			if c.toPod {
				do = x.upload
			}
			if err := do(t.Context()); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %s", err, c.want)
			}
			if data, err := os.ReadFile(filepath.Join(folder, "file")); err != nil || string(data) != "1" {
				t.Errorf("the file is %q, %v", data, err)
			}
		})
	}
}

// failure is a command that goes wrong.
type failure struct {
	err  error
	says string
}

func (f failure) Stream(o remotecommand.StreamOptions) error {
	return f.StreamWithContext(context.Background(), o)
}

func (f failure) StreamWithContext(_ context.Context, o remotecommand.StreamOptions) error {
	_, _ = o.Stderr.Write([]byte(f.says))
	return f.err
}

func TestFilesAreTransferredByKeys(t *testing.T) {
	if _, err := exec.LookPath("tar"); err != nil {
		t.Skip("there is no tar")
	}
	from, to := t.TempDir(), t.TempDir()
	write(t, filepath.Join(from, "report"), "12 of 12")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "data", Name: "db-0"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "db"}, {Name: "proxy"}}}}
	s := newShow(t, Config{}, 140, 30, allowing(t, nil, pod), func(a *app) { a.cluster.exec = hereInstead })
	s.await("db-0")
	s.keys("/", "name:db-0", tcell.KeyEnter)
	s.await("[1/4]")
	s.keys("t")
	s.await("transfer data/db-0", "from the container to here", "from here to the container")
	s.keys(tcell.KeyEnter)
	s.await("container", "proxy")
	s.keys(tcell.KeyEnter)
	s.await("transfer data/db-0:db", "container's path", "path here", "what is there by that name is replaced")
	s.keys(from[1:]+"/report", tcell.KeyTab, tcell.KeyCtrlU, to+"/", tcell.KeyEnter)
	s.await("● done in", "1 files   8 B", "100%", "transferred")
	if data, err := os.ReadFile(filepath.Join(to, "report")); err != nil || string(data) != "12 of 12" {
		t.Errorf("%q, %v", data, err)
	}
}
