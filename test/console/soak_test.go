package console

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

var (
	binary  = flag.String("orrery", "", "the orrery binary")
	pods    = flag.Int("pods", 10_000, "rows that the console shows")
	nodes   = flag.Int("nodes", 200, "simulated nodes that they run on")
	rate    = flag.Float64("rate", 500, "changes a second that are aimed at")
	minutes = flag.Float64("minutes", 0, "how long the console is watched; without it nothing is measured")
)

// What the console may take.
const (
	firstRows  = time.Second
	keyToPaint = 50 * time.Millisecond // of 95 keys in 100
	wire       = 50 << 10              // bytes a second
	growth     = 1.10                  // of its memory, from the first fifth to the last
	shellOpens = time.Second           // with its first command, however large the cluster
	namespaces = 20
)

// TestSoak shows all pods of a large cluster that changes all the time in a
// console of its own, presses keys, and holds it to its budgets. Names are the
// complaints about other consoles that a part answers.
func TestSoak(t *testing.T) {
	if *binary == "" || *minutes == 0 {
		t.Skip("make soak-console names the binary and how long")
	}
	cluster := startCluster(t, *nodes, behind...) // a user's terminal is on a machine of its own
	kube := connect(t, cluster.kubeconfig)
	names := fill(t, kube)
	stop := churn(t, kube, names)

	began := time.Now()
	c := open(t, cluster.kubeconfig)
	c.await(t, "load-")
	rows := time.Since(began)
	t.Run("T1 the first rows are there at once", func(t *testing.T) {
		t.Logf("%d pods: first rows after %s, with the start of the program", *pods, rows.Round(time.Millisecond))
		if rows > firstRows {
			t.Errorf("first rows after %s", rows)
		}
	})
	t.Run("T2 all of them are counted", func(t *testing.T) { countsAll(t, c, kube) })
	t.Run("T11 a shell opens as in a small cluster", func(t *testing.T) { opensShell(t, c) })
	var memory []int64
	t.Run("T1 keys are answered at once, and little is sent", func(t *testing.T) { memory = soak(t, c, stop) })
	t.Run("T6, T7 its memory stays flat", func(t *testing.T) {
		fifth := max(len(memory)/5, 1)
		early, late := median(memory[fifth:2*fifth+1]), median(memory[len(memory)-fifth:])
		t.Logf("memory: %d MiB at first, %d MiB at last", early>>20, late>>20)
		if float64(late) > growth*float64(early) {
			t.Errorf("memory grew from %d to %d bytes", early, late)
		}
	})
}

// countsAll looks for the number of pods and of nodes in each view that tells it.
func countsAll(t *testing.T, c *console, kube kubernetes.Interface) {
	list, err := kube.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		t.Fatal(err)
	}
	all := len(list.Items)
	for _, step := range []struct{ line, want string }{
		{"nodes", fmt.Sprintf("nodes[%d]", *nodes)}, {"pods all", fmt.Sprintf("pods(all)[%d]", all)},
		{"pulse", fmt.Sprintf("%5d", all)}, {"pods all", fmt.Sprintf("pods(all)[%d]", all)},
	} {
		began := time.Now()
		c.write(t, ":"+step.line+"\r")
		c.awaitRedrawn(t, step.want)
		t.Logf("%s has %s after %s", step.line, step.want, time.Since(began).Round(time.Millisecond))
	}
}

// opensShell opens one in the first pod, and leaves it.
func opensShell(t *testing.T, c *console) {
	began := time.Now()
	c.write(t, "s")
	c.await(t, "exit or ctrl-d comes back")
	c.write(t, "echo he''re\r")
	c.await(t, "here")
	took := time.Since(began)
	t.Logf("a shell's first answer comes after %s", took.Round(time.Millisecond))
	if took > shellOpens {
		t.Errorf("it takes %s", took)
	}
	c.write(t, "exit\r")
	c.await(t, "pods(all)")
}

// soak presses keys for the minutes that it is given, and returns what memory the
// console had meanwhile.
func soak(t *testing.T, c *console, stop func() float64) (memory []int64) {
	var paints []time.Duration
	end := time.Now().Add(time.Duration(*minutes * float64(time.Minute)))
	sent, cpu, since := c.sent.Load(), c.cpu(t), time.Now()
	for time.Now().Before(end) {
		paints = append(paints, c.press(t))
		memory = append(memory, c.memory(t))
		time.Sleep(time.Second) // a user looks at what is there
	}
	took := time.Since(since).Seconds()
	perSecond := float64(c.sent.Load()-sent) / took
	t.Logf("%.0f changes/s for %.0f s: %.1f KiB/s to the terminal, %.2f of a core", stop(), took, perSecond/1024, (c.cpu(t)-cpu).Seconds()/took)
	if perSecond > wire {
		t.Errorf("%.0f bytes a second", perSecond)
	}
	slices.Sort(paints)
	p95 := paints[len(paints)*95/100]
	t.Logf("key to paint: median %s, 95%% %s, most %s", paints[len(paints)/2], p95, paints[len(paints)-1])
	if p95 > keyToPaint {
		t.Errorf("key to paint takes %s", p95)
	}
	return memory
}

func median(of []int64) int64 {
	of = slices.Sorted(slices.Values(of))
	return of[len(of)/2]
}

// fill has the pods made by Deployments, waits until they run, and returns those
// of the first namespace.
func fill(t *testing.T, kube kubernetes.Interface) (names []string) {
	ctx := t.Context()
	each := int32((*pods + namespaces - 1) / namespaces)
	label := map[string]string{"app": "load"}
	for i := range namespaces {
		ns := fmt.Sprintf("load-%d", i)
		if _, err := kube.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := kube.AppsV1().Deployments(ns).Create(ctx, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "load"}, Spec: appsv1.DeploymentSpec{
			Replicas: &each, Selector: &metav1.LabelSelector{MatchLabels: label},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: label}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "registry.example/load:1"}}}},
		}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	await(t, 20*time.Minute, "all pods run", func() bool {
		list, err := kube.AppsV1().Deployments("").List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		return err == nil && !slices.ContainsFunc(list.Items, func(d appsv1.Deployment) bool { return d.Status.ReadyReplicas != *d.Spec.Replicas })
	})
	list, err := kube.CoreV1().Pods("load-0").List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range list.Items {
		names = append(names, p.Name)
	}
	return names
}

// churn changes pods' labels until stop is called, which tells how many it
// changed a second.
func churn(t *testing.T, kube kubernetes.Interface, names []string) (stop func() float64) {
	ctx, cancel := context.WithCancel(context.Background())
	var begun, done atomic.Int64
	var workers sync.WaitGroup
	started := time.Now()
	for range 16 {
		workers.Go(func() {
			for ctx.Err() == nil {
				n := begun.Add(1)
				time.Sleep(time.Until(started.Add(time.Duration(float64(n) / *rate * float64(time.Second)))))
				patch := fmt.Sprintf(`{"metadata":{"labels":{"tick":"%d"}}}`, n)
				_, err := kube.CoreV1().Pods("load-0").Patch(ctx, names[int(n)%len(names)], types.MergePatchType, []byte(patch), metav1.PatchOptions{})
				if err == nil {
					done.Add(1)
				}
			}
		})
	}
	stop = sync.OnceValue(func() float64 {
		perSecond := float64(done.Load()) / time.Since(started).Seconds()
		cancel()
		workers.Wait()
		return perSecond
	})
	t.Cleanup(func() { stop() })
	return stop
}

// console is one that runs in a terminal of the test's.
type console struct {
	tty  *os.File
	pid  int
	sent atomic.Int64 // bytes that it wrote

	mu   sync.Mutex // protects seen
	seen bytes.Buffer
}

func open(t *testing.T, kubeconfig string) *console {
	return play(t, exec.Command(*binary, "tui", "--kubeconfig", kubeconfig, "--command", "pods all"), 160, 48)
}

// play starts a console in a terminal of that size.
func play(t *testing.T, program *exec.Cmd, width, height uint16) *console {
	program.Env = append(os.Environ(), "TERM=xterm-256color", "LANG=C.UTF-8", "COLORTERM=")
	tty, err := pty.StartWithSize(program, &pty.Winsize{Rows: height, Cols: width})
	if err != nil {
		t.Fatal(err)
	}
	c := &console{tty: tty, pid: program.Process.Pid}
	read := make(chan struct{})
	go func() {
		defer close(read)
		piece := make([]byte, 64<<10)
		for {
			n, err := tty.Read(piece)
			if err != nil {
				return
			}
			c.sent.Add(int64(n))
			c.mu.Lock()
			c.seen.Write(piece[:n])
			c.mu.Unlock()
		}
	}()
	t.Cleanup(func() {
		_ = program.Process.Signal(syscall.SIGTERM)
		_ = program.Wait()
		tty.Close()
		<-read
	})
	return c
}

// awaitRedrawn has the screen written whole now and then: of a number that grows, the
// console writes only the digits that change.
func (c *console) awaitRedrawn(t *testing.T, text string) {
	asked := time.Now()
	await(t, time.Minute, text, func() bool {
		if time.Since(asked) > 15*time.Second {
			asked = time.Now()
			c.write(t, ":refresh\r")
		}
		return c.wrote(text)
	})
}

// await waits until the console has written a text since the last one.
func (c *console) await(t *testing.T, text string) {
	await(t, time.Minute, text, func() bool { return c.wrote(text) })
}

func (c *console) wrote(text string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !bytes.Contains(c.seen.Bytes(), []byte(text)) {
		return false
	}
	c.seen.Reset()
	return true
}

// press types a letter that nothing else on the screen has, into the prompt, and
// tells how long it took to appear.
func (c *console) press(t *testing.T) time.Duration {
	c.write(t, ":")
	time.Sleep(200 * time.Millisecond) // the prompt is there
	began := time.Now()
	c.write(t, "§")
	c.await(t, "§")
	took := time.Since(began)
	c.write(t, "\x1b")
	return took
}

func (c *console) write(t *testing.T, keys string) {
	if _, err := c.tty.WriteString(keys); err != nil {
		t.Fatal("the console is gone: ", err)
	}
}

// memory is what the console has to itself, in bytes.
func (c *console) memory(t *testing.T) int64 {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "RssAnon:"); ok {
			kib, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return kib << 10
		}
	}
	return 0
}

// cpu is what the console has used.
func (c *console) cpu(t *testing.T) time.Duration {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(rest) // from the state on, the third of proc(5)
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond
}
