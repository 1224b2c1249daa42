package clients

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var program = flag.String("orrery", "", "the program to test; make clients builds and names it")

// cluster is a simulated cluster, which all tests share.
type cluster struct {
	kubeconfig string
	config     *rest.Config
	client     client.Client
}

var shared struct {
	*cluster
	stop func() error
}

func TestMain(m *testing.M) {
	flag.Parse()
	code := 1
	if err := begin(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	} else {
		code = m.Run()
	}
	if shared.stop != nil {
		if err := shared.stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// begin starts the cluster and waits until it says that it is up.
func begin() error {
	if *program == "" {
		return nil // the tests skip
	}
	dir, err := os.MkdirTemp("", "orrery-clients-")
	if err != nil {
		return err
	}
	address, err := freeAddress()
	if err != nil {
		return err
	}
	output := &watchedOutput{up: make(chan struct{})}
	process := exec.Command(*program, "up", "--simulate", "--nodes", "2", "--data-dir", dir, "--address", address)
	process.Stdout, process.Stderr = output, output
	if err := process.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- process.Wait() }()
	shared.stop = func() error {
		_ = process.Process.Signal(syscall.SIGTERM)
		defer os.RemoveAll(dir)
		select {
		case <-ended:
			return nil
		case <-time.After(time.Minute):
			_ = process.Process.Kill()
			return fmt.Errorf("the cluster did not stop within a minute of being asked to")
		}
	}
	select {
	case <-output.up:
	case err := <-ended:
		return fmt.Errorf("the cluster ended: %v\n%s", err, output)
	case <-time.After(3 * time.Minute):
		return fmt.Errorf("the cluster did not come up:\n%s", output)
	}
	c := &cluster{kubeconfig: filepath.Join(dir, "kubeconfig", "admin.conf")}
	if c.config, err = clientcmd.BuildConfigFromFlags("", c.kubeconfig); err != nil {
		return err
	}
	c.client, err = client.New(c.config, client.Options{})
	shared.cluster = c
	return err
}

func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// watchedOutput is what a cluster prints; up is closed when it is up.
type watchedOutput struct {
	mu   sync.Mutex // protects the fields below
	text bytes.Buffer
	up   chan struct{}
	once sync.Once
}

func (w *watchedOutput) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text.Write(p)
	if bytes.Contains(w.text.Bytes(), []byte("cluster is up")) {
		w.once.Do(func() { close(w.up) })
	}
	return len(p), nil
}

func (w *watchedOutput) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

func theCluster(t *testing.T) *cluster {
	if shared.cluster == nil {
		t.Skip("no binary: run make clients")
	}
	return shared.cluster
}

// await polls until a condition holds; problem is what it waits for.
func await(ctx context.Context, t *testing.T, condition func(context.Context) (problem string)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		problem := condition(ctx)
		if problem == "" {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal(problem)
		}
	}
}

// get reads an object; problem is empty if it is there and as it should be.
func get[T client.Object](ctx context.Context, c *cluster, namespace, name string, obj T, fits func(T) bool) (problem string) {
	if err := c.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, obj); err != nil {
		return err.Error()
	}
	if !fits(obj) {
		return fmt.Sprintf("%T %s/%s is %+v", obj, namespace, name, obj)
	}
	return ""
}

// gone is the opposite of get.
func gone(ctx context.Context, c *cluster, namespace, name string, obj client.Object) (problem string) {
	err := c.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, obj)
	if apierrors.IsNotFound(err) {
		return ""
	}
	return fmt.Sprintf("%T %s/%s is there: %v", obj, namespace, name, err)
}
