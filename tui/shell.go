package tui

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"
	utilexec "k8s.io/client-go/util/exec"
	"k8s.io/streaming/pkg/httpstream"
)

// shellCommand starts the best shell that the image has. It clears nothing: what
// a shell before it showed stays to be read.
var shellCommand = [...]string{"sh", "-c", "export TERM=xterm-256color; if command -v bash >/dev/null 2>&1; then exec bash; fi; exec sh"}

// shell opens a shell in one of the pod's containers.
func (a *app) shell(t target) {
	a.inContainer(t, func(container string) {
		a.terminal(t, "exec", &corev1.PodExecOptions{Container: container, Command: shellCommand[:], Stdin: true, Stdout: true, TTY: true})
	})
}

// attach connects to the container's own terminal.
func (a *app) attach(t target) {
	a.inContainer(t, func(container string) {
		a.terminal(t, "attach", &corev1.PodAttachOptions{Container: container, Stdin: true, Stdout: true, TTY: true})
	})
}

// inContainer finds the container that is meant, asking if there are several.
func (a *app) inContainer(t target, do func(container string)) {
	if t.container != "" {
		do(t.container)
		return
	}
	a.async(func(ctx context.Context) func() {
		pod, err := a.cluster.kube.CoreV1().Pods(t.namespace).Get(ctx, t.name, metav1.GetOptions{})
		return func() {
			if err != nil {
				a.fail(err)
				return
			}
			var names []string
			for _, c := range pod.Spec.Containers {
				names = append(names, c.Name)
			}
			a.choose("container", names, do)
		}
	})
}

// terminal gives the terminal to a program in the container until it ends.
func (a *app) terminal(t target, sub string, options any) {
	executor, err := a.cluster.exec(t, sub, options)
	if err != nil {
		a.fail(err)
		return
	}
	a.aside(func() error {
		for said := false; ; {
			err := a.lend(func(tty io.ReadWriter, sizes *sizeQueue) error {
				fmt.Fprintf(tty, "%s %s: %s\r\n", sub, t, a.words.say("exit or ctrl-d comes back"))
				out := &heard{Writer: tty}
				defer func() { said = said || out.anything }()
				return executor.StreamWithContext(a.ctx, remotecommand.StreamOptions{Stdin: sizes, Stdout: out, Tty: true, TerminalSizeQueue: sizes})
			})
			var code utilexec.CodeExitError
			switch {
			case errors.As(err, &code): // the last command of the shell, not ours, went wrong
				a.note("exit code %d", code.Code)
				return nil
			case err == nil || !said || a.ctx.Err() != nil:
				return err
			case !a.connectAgain(err):
				return nil
			}
		}
	})
}

// connectAgain says below what a session showed why it broke, and whether the
// user wants another.
func (a *app) connectAgain(why error) (yes bool) {
	_ = a.lend(func(tty io.ReadWriter, _ *sizeQueue) error {
		fmt.Fprintf(tty, "\r\n%s\r\n── %s ──\r\n", oneLine(a.words.told(why.Error())), a.words.say("r connects again, any other key goes back"))
		key := make([]byte, 8)
		n, err := tty.Read(key)
		yes = err == nil && string(key[:n]) == "r"
		return err
	})
	return yes
}

// heard notes whether anything was written.
type heard struct {
	io.Writer
	anything bool
}

func (h *heard) Write(p []byte) (int, error) {
	h.anything = true
	return h.Writer.Write(p)
}

// executor speaks websocket, and SPDY to servers that don't.
func (c *cluster) executor(t target, sub string, options any) (remotecommand.Executor, error) {
	request := c.kube.CoreV1().RESTClient().Post().Resource("pods").Namespace(t.namespace).Name(t.name).SubResource(sub)
	switch o := options.(type) {
	case *corev1.PodExecOptions:
		request.VersionedParams(o, scheme.ParameterCodec)
	case *corev1.PodAttachOptions:
		request.VersionedParams(o, scheme.ParameterCodec)
	}
	old, err := remotecommand.NewSPDYExecutor(c.config, http.MethodPost, request.URL())
	if err != nil {
		return nil, err
	}
	modern, err := remotecommand.NewWebSocketExecutor(c.config, http.MethodGet, request.URL().String())
	if err != nil {
		return nil, err
	}
	return remotecommand.NewFallbackExecutor(modern, old, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	})
}

// aside leaves the screen to something else while f runs, and says whether that
// went well.
func (a *app) aside(f func() error) bool {
	a.suspended.Store(true)
	var err error
	a.tv.Suspend(func() { err = f() })
	a.suspended.Store(false)
	a.dirty()
	if err != nil {
		a.fail(err)
	}
	return err == nil
}

// runEditor lets the user edit text in a temporary file.
func runEditor(editor, pattern, text string) (string, error) {
	f, err := os.CreateTemp("", strings.ReplaceAll(pattern, "/", "-"))
	if err != nil {
		return "", err
	}
	defer os.Remove(f.Name())
	_, err = f.WriteString(text)
	if err := errors.Join(err, f.Close()); err != nil {
		return "", err
	}
	words := append(strings.Fields(editor), f.Name())
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("editor %s: %w", words[0], err)
	}
	data, err := os.ReadFile(f.Name())
	return string(data), err
}
