package console

import (
	"encoding/base64"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authnv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// TestTerminal plays what only a real terminal shows. Names are the complaints
// about other consoles that a part answers.
func TestTerminal(t *testing.T) {
	if *binary == "" {
		t.Skip("make console names the binary")
	}
	if _, err := exec.LookPath("tmux"); err != nil {
		t.Skip("tmux is missing (apt-get install tmux)")
	}
	cluster := startCluster(t, 3)
	kubeconfig := cluster.kubeconfig
	kube := connect(t, kubeconfig)
	must(t)(kube.CoreV1().Pods("default").Create(t.Context(), podNamed("web"), metav1.CreateOptions{}))
	await(t, time.Minute, "the pod runs", func() bool {
		p, err := kube.CoreV1().Pods("default").Get(t.Context(), "web", metav1.GetOptions{})
		return err == nil && p.Status.Phase == corev1.PodRunning
	})
	console := consoleOf(kubeconfig, "pods default")

	t.Run("T32 a shell has the size of its terminal, at once and after a change", func(t *testing.T) {
		w := newWindow(t, "xterm-256color", console)
		w.await(t, "web", "Running")
		w.keys(t, "s")
		w.await(t, "exit or ctrl-d comes back")
		w.keys(t, "stty size", "Enter")
		w.await(t, "40 120")
		w.tmux(t, "resize-window", "-x", "101", "-y", "33")
		// Keys may be ahead of a change of size: they come by another channel.
		w.ask(t, "clear; stty size", "33 101")
		w.keys(t, "exit", "Enter")
		w.await(t, "pods(default)") // the table, in its new size
	})
	t.Run("a shell on a node leaves nothing behind", func(t *testing.T) {
		w := newWindow(t, "xterm-256color", fmt.Sprintf("%s tui --kubeconfig %s --command nodes", *binary, kubeconfig))
		w.await(t, "Ready", "● live")
		w.keys(t, "s")
		w.await(t, "privileged", "Cancel")
		w.keys(t, "Enter")
		w.await(t, "exit or ctrl-d comes back", "/ #")
		w.keys(t, "hostname", "Enter")
		w.await(t, "/ # hostname")
		w.keys(t, "exit", "Enter")
		w.await(t, "the pod of the shell is removed", "nodes[")
		await(t, time.Minute, "the job goes", func() bool {
			jobs, err := kube.BatchV1().Jobs("default").List(t.Context(), metav1.ListOptions{})
			return err == nil && len(jobs.Items) == 0
		})
	})
	t.Run("files go to a container and come back", func(t *testing.T) {
		folder := t.TempDir()
		if err := os.WriteFile(filepath.Join(folder, "there"), []byte("and back"), 0o600); err != nil {
			t.Fatal(err)
		}
		w := newWindow(t, "xterm-256color", console)
		w.await(t, "web", "Running")
		w.keys(t, "t")
		w.await(t, "from here to the container")
		w.keys(t, "Down", "Enter")
		w.await(t, "path here")
		w.keys(t, "tmp/", "Tab", "C-u", filepath.Join(folder, "there"), "Enter")
		w.await(t, "● done in", "1 files   8 B")
		w.keys(t, "Escape")
		w.await(t, "pods(default)")
		w.keys(t, "t")
		w.await(t, "from the container to here")
		w.keys(t, "Enter")
		w.await(t, "path here")
		w.keys(t, "tmp/there", "Tab", "C-u", filepath.Join(folder, "back"), "Enter")
		w.await(t, "● done in", "1 files   8 B")
		if data, err := os.ReadFile(filepath.Join(folder, "back")); err != nil || string(data) != "and back" {
			t.Errorf("%q, %v", data, err)
		}
	})
	t.Run("T49 it can be suspended, and comes back whole", func(t *testing.T) {
		w := newWindow(t, "xterm-256color", "bash --norc")
		w.keys(t, "PS1='shell> '", "Enter", console, "Enter")
		w.await(t, "web", "Running")
		w.keys(t, "C-z")
		w.await(t, "Stopped", "shell>")
		w.keys(t, "fg", "Enter")
		w.await(t, "● live", "Cluster", "<:>", "pods(default)", "Running", "└───", "\n pods")
		w.keys(t, "?")
		w.await(t, ":describe")
		w.keys(t, "Escape")
		w.await(t, "pods(default)", "Running")
		w.keys(t, ":q", "Enter")
		w.await(t, "shell>")
	})
	t.Run("T49 it can be stopped by a signal, under a shell and alone", func(t *testing.T) { stopsAndGoesOn(t, console) })
	t.Run("T49 so can a shell in it, and the terminal is raw again", func(t *testing.T) { shellIsStopped(t, console) })
	t.Run("it ends with its terminal, though it would survive that", func(t *testing.T) { endsWithTerminal(t, console) })
	t.Run("T16 the API server goes and comes, and nothing is missed", func(t *testing.T) {
		line, through := cutLine(t, kubeconfig)
		w := newWindow(t, "xterm-256color", consoleOf(through, "pods default"))
		w.await(t, "web", "Running", "● live")
		slack := w.slack(t)
		line.cut(true)
		began := time.Now()
		w.await(t, "reconnecting")
		if took := time.Since(began); took > 2*time.Second+slack {
			t.Errorf("a break is told after %s", took)
		}
		patch := []byte(`{"metadata":{"name":"late"},"spec":{"containers":[{"name":"c","image":"registry.example/late:1"}]}}`)
		if _, err := kube.CoreV1().Pods("default").Patch(t.Context(), "late", types.ApplyPatchType, append([]byte(`{"apiVersion":"v1","kind":"Pod",`), patch[1:]...), metav1.PatchOptions{FieldManager: "test"}); err != nil {
			t.Fatal(err)
		}
		line.cut(false)
		began = time.Now()
		w.await(t, "● live", "late")
		if took := time.Since(began); took > 5*time.Second+slack {
			t.Errorf("live again after %s", took)
		}
	})
	t.Run("T48 what is copied goes to the terminal's clipboard", func(t *testing.T) {
		c := open(t, kubeconfig)
		c.await(t, "Running")
		c.write(t, "/^web\r")
		c.await(t, "[1/")
		c.write(t, "c")
		c.await(t, "\x1b]52;c;"+base64.StdEncoding.EncodeToString([]byte("web")))
	})
	t.Run("T10 of lists only rows travel", func(t *testing.T) { onlyRowsTravel(t, kubeconfig, kube) })
	t.Run("T19 a pod's status is kubectl's word", func(t *testing.T) { wordsAreKubectls(t, kubeconfig, kube) })
	t.Run("T36 a user of one namespace lands there", func(t *testing.T) { landsAtHome(t, kubeconfig, kube) })
	t.Run("T45 what is done to many is done to those that are marked", func(t *testing.T) { actsOnMany(t, kubeconfig, kube) })
	t.Run("a server that knows nothing of the console's questions is looked at, too", func(t *testing.T) { looksAtForeign(t, kubeconfig) })
	for _, term := range []struct{ name, env, want string }{
		{"xterm-256color", "", "●"}, {"screen-256color", "", "●"}, {"linux", "", "web"}, {"xterm-256color", "NO_COLOR=1", "●"}, {"dumb", "", ""},
	} {
		t.Run(strings.TrimSpace("terminal "+term.name+" "+term.env), func(t *testing.T) {
			w := newWindow(t, term.name, "bash --norc")
			w.keys(t, "PS1='shell> '; clear", "Enter", term.env+" TERM="+term.name+" LANG=C.UTF-8 "+console, "Enter")
			if term.name == "dumb" { // it has no cursor to move
				w.await(t, "with TERM set to its type")
				return
			}
			w.await(t, "Running", term.want, "pods(default)")
			coloured := colour.MatchString(w.tmux(t, "capture-pane", "-e", "-p"))
			if coloured == (term.env != "") {
				t.Errorf("coloured: %v", coloured)
			}
		})
	}
	t.Run("T33 a shell that breaks keeps what it wrote, and goes on after one key", func(t *testing.T) { shellGoesOn(t, cluster, console) })
}

// colour is what sets a colour, of text or behind it.
var colour = regexp.MustCompile(`\x1b\[(?:[0-9;]*;)?[34][0-8](?:;[0-9;]*)?m`)

func consoleOf(kubeconfig, command string) string {
	return fmt.Sprintf("%s tui --kubeconfig %s --command '%s'", *binary, kubeconfig, command)
}

// stopsAndGoesOn stops the console with the signal that no program hears of. Its
// terminal is another's meanwhile, or another size.
func stopsAndGoesOn(t *testing.T, console string) {
	whole := func(w *window) {
		w.await(t, "● live", "Cluster", "<:>", "pods(default)", "Running", "└───", "\n pods")
		w.keys(t, "?")
		w.await(t, ":describe")
		w.keys(t, "Escape")
		w.await(t, "pods(default)", "Running")
	}
	w := newWindow(t, "xterm-256color", "bash --norc")
	w.keys(t, "PS1='shell> '", "Enter", console, "Enter")
	w.await(t, "web", "Running")
	_ = syscall.Kill(w.child(t), syscall.SIGSTOP)
	w.await(t, "Stopped", "shell>")
	w.keys(t, "clear", "Enter")
	w.awaitGone(t, "Cluster") // what is drawn from now on is drawn anew
	w.keys(t, "fg", "Enter")
	whole(w)
	w.keys(t, ":q", "Enter")
	w.await(t, "shell>")

	alone := newWindow(t, "xterm-256color", console)
	alone.await(t, "web", "Running")
	_ = syscall.Kill(alone.pid(t), syscall.SIGSTOP)
	alone.tmux(t, "resize-window", "-x", "90", "-y", "30")
	_ = syscall.Kill(alone.pid(t), syscall.SIGCONT)
	whole(alone)
}

// endsWithTerminal takes the terminal away in the middle of keys, soon after a signal
// at which the console takes its terminal again: one comes with a hang-up.
func endsWithTerminal(t *testing.T, console string) {
	for _, late := range []time.Duration{0, 500 * time.Microsecond, 2 * time.Millisecond, 50 * time.Millisecond} {
		program := exec.Command("sh", "-c", "trap '' HUP; exec "+console)
		c := play(t, program, 80, 24)
		c.await(t, "web")
		c.write(t, strings.Repeat("j", 300))
		_ = program.Process.Signal(syscall.SIGCONT)
		time.Sleep(late) // the orders that are tried
		c.tty.Close()
		ended := make(chan error, 1)
		go func() { ended <- program.Wait() }()
		select {
		case <-ended:
		case <-time.After(20 * time.Second):
			_ = program.Process.Kill()
			t.Errorf("it still runs, %s after the signal the terminal was gone", late)
			<-ended
		}
	}
}

// shellIsStopped stops the console while it has lent the terminal to a shell in a
// pod. The shell that it was started from makes the terminal its own meanwhile.
func shellIsStopped(t *testing.T, console string) {
	w := newWindow(t, "xterm-256color", "bash --norc")
	w.keys(t, "PS1='shell> '", "Enter", console, "Enter")
	w.await(t, "web", "Running")
	w.keys(t, "s")
	w.await(t, "exit or ctrl-d comes back", "/ #")
	tty := strings.TrimSpace(w.tmux(t, "display-message", "-p", "#{pane_tty}"))
	modes := func(has string) {
		t.Helper()
		await(t, time.Minute, has, func() bool {
			out, err := exec.Command("stty", "-F", tty, "-a").Output()
			return err == nil && strings.Contains(" "+strings.Join(strings.Fields(string(out)), " ")+" ", " "+has+" ")
		})
	}
	modes("-isig")
	_ = syscall.Kill(w.child(t), syscall.SIGSTOP)
	w.await(t, "Stopped", "shell>")
	modes("isig")
	w.tmux(t, "resize-window", "-x", "101", "-y", "33")
	w.keys(t, "clear; fg", "Enter")
	modes("-isig")
	w.ask(t, "stty size", "33 101")
	w.keys(t, "exit", "Enter")
	w.await(t, "pods(default)", "● live")
	w.keys(t, ":q", "Enter")
	w.await(t, "shell>")
}

// shellGoesOn kills the API server under a shell.
func shellGoesOn(t *testing.T, cluster *cluster, console string) {
	w := newWindow(t, "xterm-256color", console)
	w.await(t, "web", "Running")
	w.keys(t, "s")
	w.await(t, "exit or ctrl-d comes back", "/ #")
	var lines []string
	for i := range 60 { // more than fit on the screen
		lines = append(lines, fmt.Sprintf("line '%d'", i))
	}
	w.keys(t, "echo "+strings.Join(lines, "; echo "), "Enter")
	w.await(t, "\nline 59\n")
	kept := func(when string) {
		t.Helper()
		past := w.past(t)
		for i := range 60 {
			if text := fmt.Sprintf("\nline %d\n", i); !strings.Contains(past, text) {
				t.Fatalf("%s %q is gone:\n%s", when, text, past)
			}
		}
	}
	cluster.end(syscall.SIGKILL)
	w.await(t, "──", "r connects again", "line 59")
	kept("after the break")
	cluster.start(t)
	await(t, time.Minute, "another shell", func() bool {
		screen := w.await(t, "──")
		if strings.HasSuffix(strings.TrimSpace(screen), "──") { // it is not there yet, or no more
			w.keys(t, "r")
			time.Sleep(time.Second)
		}
		return strings.Contains(screen, "This container is simulated")
	})
	w.keys(t, "echo a'g'ain", "Enter")
	w.await(t, "\nagain\n", "r connects again") // below the line that divides the two
	kept("in the next shell")
	w.keys(t, "exit", "Enter")
	w.await(t, "pods(default)", "● live", "Running")
}

// onlyRowsTravel looks through all that the server sends.
func onlyRowsTravel(t *testing.T, kubeconfig string, kube kubernetes.Interface) {
	const secret = "greeting-of-a-secret"
	meta := metav1.ObjectMeta{Name: "big", Annotations: map[string]string{corev1.LastAppliedConfigAnnotation: secret}}
	must(t)(kube.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"a": secret}}, metav1.CreateOptions{}))
	must(t)(kube.CoreV1().Secrets("default").Create(t.Context(), &corev1.Secret{ObjectMeta: meta, StringData: map[string]string{"a": secret}}, metav1.CreateOptions{}))
	through, sent := openly(t, kubeconfig, "")
	w := newWindow(t, "xterm-256color", consoleOf(through, "pods all"))
	w.await(t, "web", "Running", "default") // and what the header tells
	for _, step := range []struct{ line, title, want string }{
		{"configmaps default", "configmaps(default)[", "big"}, {"secrets default", "secrets(default)[", "big"}, {"nodes", "nodes[", "node-3"},
		{"deployments all", "deployments(all)[", "NAME"}, {"events all", "events(all)[", "Scheduled"}, {"namespaces", "namespaces[", "kube-system"},
		{"pulse", "What is wrong now", "nodes"}, {"map", "etcd", "node-3"},
	} {
		w.keys(t, ":"+step.line, "Enter")
		w.await(t, step.title, step.want)
	}
	got := sent.String()
	if !strings.Contains(got, "web") || !strings.Contains(got, "big") {
		t.Fatalf("of %d bytes none is of a row", len(got))
	}
	for _, wrong := range []string{secret, base64.StdEncoding.EncodeToString([]byte(secret)), "managedFields"} {
		if at := strings.Index(got, wrong); at >= 0 {
			t.Errorf("%q was sent: …%q…", wrong, got[max(at-300, 0):min(at+100, len(got))])
		}
	}
}

// landsAtHome is a user who may see one namespace and list none.
func landsAtHome(t *testing.T, kubeconfig string, kube kubernetes.Interface) {
	ctx := t.Context()
	must(t)(kube.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "home"}}, metav1.CreateOptions{}))
	must(t)(kube.CoreV1().ServiceAccounts("home").Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "reader"}}, metav1.CreateOptions{}))
	must(t)(kube.RbacV1().RoleBindings("home").Create(ctx, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "readers"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "home", Name: "reader"}}}, metav1.CreateOptions{}))
	for _, name := range []string{"a", "b"} {
		must(t)(kube.CoreV1().Pods("home").Create(ctx, podNamed("of-home-"+name), metav1.CreateOptions{}))
	}
	token, err := kube.CoreV1().ServiceAccounts("home").CreateToken(ctx, "reader", &authnv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	own := alter(t, kubeconfig, func(cfg *clientcmdapi.Config) {
		for _, who := range cfg.AuthInfos {
			*who = clientcmdapi.AuthInfo{Token: token.Status.Token}
		}
	})
	w := newWindow(t, "xterm-256color", fmt.Sprintf("%s tui --kubeconfig %s", *binary, own))
	screen := w.await(t, "pods(home)[2]", "of-home-a", "of-home-b", "Running", "● live", "system:serviceaccount:home:reader", "home")
	if strings.Contains(screen, "forbidden") {
		t.Errorf("what is forbidden stays on\n%s", screen)
	}
	w.keys(t, ":deployments", "Enter")
	w.await(t, "deployments(home)[0]", "there are none")
	w.keys(t, ":pods", "Enter")
	w.await(t, "pods(home)[2]")
	w.keys(t, "C-d")
	w.await(t, `needs the verb "delete" on pods in home`)
}

// actsOnMany marks two of three.
func actsOnMany(t *testing.T, kubeconfig string, kube kubernetes.Interface) {
	ctx := t.Context()
	must(t)(kube.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "many"}}, metav1.CreateOptions{}))
	for _, name := range []string{"a", "b", "c"} {
		label := map[string]string{"app": name}
		must(t)(kube.AppsV1().Deployments("many").Create(ctx, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: label}, Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: label}, Spec: podNamed("").Spec}}}, metav1.CreateOptions{}))
	}
	which := func(is func(appsv1.Deployment) bool) string {
		list, err := kube.AppsV1().Deployments("many").List(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, d := range list.Items {
			if is(d) {
				out = append(out, d.Name)
			}
		}
		return strings.Join(out, " ")
	}
	w := newWindow(t, "xterm-256color", consoleOf(kubeconfig, "deployments many"))
	w.await(t, "deployments(many)[3]", "1/1")
	w.keys(t, "Space", "Space", "r")
	w.await(t, "many/a", "many/b", "Cancel")
	w.keys(t, "Right", "Enter")
	await(t, time.Minute, "two are restarted", func() bool {
		return which(func(d appsv1.Deployment) bool {
			return d.Spec.Template.Annotations["kubectl.kubernetes.io/restartedAt"] != ""
		}) == "a b"
	})
	w.keys(t, ":scale 2", "Enter")
	await(t, time.Minute, "two are scaled", func() bool { return which(func(d appsv1.Deployment) bool { return *d.Spec.Replicas == 2 }) == "a b" })
	w.keys(t, "C-d")
	w.await(t, "Delete 2 deployments", "many/a", "many/b")
	w.keys(t, "Right", "Enter")
	w.await(t, "deployments(many)[1]")
	if left := which(func(appsv1.Deployment) bool { return true }); left != "c" {
		t.Errorf("%s are left", left)
	}
}

// looksAtForeign hides what only our API server answers. The console answers
// itself what it can, and says of the rest that it is not there.
func looksAtForeign(t *testing.T, kubeconfig string) {
	through, _ := openly(t, kubeconfig, "/orrery/")
	w := newWindow(t, "xterm-256color", consoleOf(through, "pods default"))
	w.await(t, "● live", "web", "Running")
	w.keys(t, "/^web", "Enter", "W")
	w.await(t, "why default/web")
	w.keys(t, "Escape")
	w.await(t, "pods(default)[1")
	w.keys(t, "C-d")
	w.await(t, "Delete pod", "Nothing else goes with it", "Cancel")
	w.keys(t, "Enter", "T")
	w.await(t, "This API server keeps no spans")
	w.keys(t, ":pulse", "Enter")
	w.await(t, "nodes", "pods", "does not tell about etcd")
}

func podNamed(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "registry.example/web:1"}}}}
}

// must fails the test for a request that fails.
func must(t *testing.T) func(any, error) {
	return func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
}
