package tui

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gdamore/tcell/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

// control presses a key with Ctrl.
func (s *show) control(k tcell.Key) { s.screen.InjectKey(k, 0, tcell.ModCtrl) }

// awaitGone waits until the screen has a text no more.
func (s *show) awaitGone(text string) {
	s.t.Helper()
	for deadline := time.Now().Add(time.Minute); strings.Contains(s.text(), text); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.t.Fatalf("%q stays on\n%s", text, s.text())
		}
	}
}

// awaitFile waits for the one file of a folder that has an ending, and reads it.
func awaitFile(t *testing.T, folder, ending string) string {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		files, err := filepath.Glob(filepath.Join(folder, "*"+ending))
		if err == nil && len(files) == 1 {
			data, err := os.ReadFile(files[0])
			if err != nil {
				t.Fatal(err)
			}
			return string(data)
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d files %s in %s: %v", len(files), ending, folder, err)
		}
	}
}

func TestScreensAreSavedListedShownAndDeleted(t *testing.T) {
	state := t.TempDir()
	folder := filepath.Join(state, "screens", "my-east-1")
	s := newShow(t, Config{State: state, Context: "my/east:1"}, 160, 30)
	s.await("db-0")
	s.keys("/", "shop", tcell.KeyEnter)
	s.await("[2/4]")
	s.control(tcell.KeyCtrlS)
	s.await("saved as pods-20", ":sd lists it")
	if got := awaitFile(t, folder, ".csv"); got != "NAMESPACE,NAME,READY,STATUS,RESTARTS,AGE\nshop,web-9,1/1,Running,0,60m\nshop,節點-測試,1/1,Running,0,60m\n" {
		t.Errorf("saves %s", got)
	}
	s.keys(tcell.KeyEscape, "?")
	s.await("Keys and commands of pods")
	s.keys(tcell.KeyF6)
	if got := awaitFile(t, folder, ".txt"); !strings.Contains(got, ":save-screen") || !strings.Contains(got, "✗ ") {
		t.Errorf("saves of the help %s", got)
	}
	s.keys(":sd", tcell.KeyEnter)
	s.await("screendumps ‹"+folder+"›[2]", "pods-20", "help-20")
	s.keys("/", "csv", tcell.KeyEnter)
	s.await("›[1/2]")
	s.keys(tcell.KeyEnter)
	s.await("NAMESPACE   NAME", "shop        web-9")
	s.keys(tcell.KeyEscape)
	s.await("›[1/2]")
	s.control(tcell.KeyCtrlD)
	s.await("Delete 1 screendumps", "Cancel")
	s.keys(tcell.KeyTab, tcell.KeyEnter)
	s.await("›[0/1]")
	if left, err := os.ReadDir(folder); err != nil || len(left) != 1 {
		t.Errorf("%d files are left: %v", len(left), err)
	}
}

func TestLogsAreSavedAsTheyAreShown(t *testing.T) {
	state := t.TempDir()
	s := makeShow(t, Config{State: state, Context: "here"}, shop(troubled(t)))
	s.run(120, 30)
	s.await("ada")
	s.app.post(func() {
		s.app.showLogs(target{kind: s.app.kinds.byPlural("pods"), namespace: "shop", name: "cart-5f6c8d-k9r2x", container: "cart"}, false)
	})
	s.await("leaving")
	s.keys("/", "INFO", tcell.KeyEnter)
	s.await("/INFO")
	s.awaitGone("leaving")
	s.control(tcell.KeyCtrlS)
	s.await("saved as")
	if got := awaitFile(t, filepath.Join(state, "screens", "here"), ".log"); got != "INFO  listening on :8080\nINFO  connected to cart-cache:6379\n" {
		t.Errorf("saves %q", got)
	}
}

func TestConsoleOfSomebodyElsewhereSavesNothing(t *testing.T) {
	c := Config{Terminal: elsewhere{}, Machine: "node-7"}
	c.FromEnvironment(func(string) string { return "/home/ada" })
	if c.State != "" || c.Settings != "" {
		t.Errorf("has places for files: %q, %q", c.State, c.Settings)
	}
	s := newShow(t, c, 150, 30)
	s.await("db-0")
	s.control(tcell.KeyCtrlS)
	s.await("save-screen: the console runs on node-7, not on your machine; copy it from your terminal")
	s.keys(":dir /", tcell.KeyEnter)
	s.await("dir: the console runs on node-7", "pods(all)[4]")
	s.keys(":transfer", tcell.KeyEnter)
	s.await("transfer: the console runs on node-7", "use kubectl cp there")
	s.keys(":sd", tcell.KeyEnter)
	s.await("screendump: the console runs on node-7")
	s.keys(":namespaces", tcell.KeyEnter)
	s.await("namespaces[4]")
	s.keys("f")
	s.await("has the key 1; until you leave")
}

func TestPlacesForFiles(t *testing.T) {
	for _, c := range []struct{ state, config, home, wantState, wantSettings string }{
		{"", "", "/home/ada", "/home/ada/.local/state/orrery", "/home/ada/.config/orrery/console.json"},
		{"/s", "/c", "/home/ada", "/s/orrery", "/c/orrery/console.json"},
		{"relative", "", "/home/ada", "/home/ada/.local/state/orrery", "/home/ada/.config/orrery/console.json"},
		{"", "", "", "", ""},
	} {
		var cfg Config
		cfg.FromEnvironment(func(name string) string {
			return map[string]string{"XDG_STATE_HOME": c.state, "XDG_CONFIG_HOME": c.config, "HOME": c.home}[name]
		})
		if cfg.State != c.wantState || cfg.Settings != c.wantSettings {
			t.Errorf("%+v: %q, %q", c, cfg.State, cfg.Settings)
		}
	}
}

func TestConsoleBeginsWhereItWasToldTo(t *testing.T) {
	file := filepath.Join(t.TempDir(), "orrery", "console.json")
	s := newShow(t, Config{Settings: file, Context: "east"}, 130, 30)
	s.await("db-0")
	s.keys(":pods shop", tcell.KeyEnter, "/", "web", tcell.KeyEnter)
	s.await("pods(shop)", "web-9")
	s.keys("d")
	s.await("describe")
	s.control(tcell.KeyCtrlP)
	s.await("the console of this cluster begins with :pods shop /web")
	awaitFile(t, filepath.Dir(file), "console.json")

	newShow(t, Config{Settings: file, Context: "east"}, 130, 30).await("pods(shop)", "/web")
	newShow(t, Config{Settings: file, Context: "west"}, 130, 30).await("pods(all)[4]")
	newShow(t, Config{Settings: file, Context: "east", Command: "namespaces"}, 130, 30).await("namespaces[")
	newShow(t, Config{Settings: file, Context: "east", Namespace: "data"}, 130, 30).await("pods(data)")
}

func TestFavouriteNamespacesAreKeptByContext(t *testing.T) {
	file := filepath.Join(t.TempDir(), "orrery", "console.json")
	namespaces := func(a *app) {
		for _, name := range []string{"default", "kube-system", "shop", "data", "db-0"} {
			if err := a.cluster.kube.(*fake.Clientset).Tracker().Add(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
				t.Error(err)
			}
		}
	}
	s := newShow(t, Config{Settings: file, Context: "east"}, 130, 30, namespaces)
	s.await("<1> default", "<2> kube-system")
	s.keys(":namespaces", tcell.KeyEnter)
	s.await("namespaces[4]")
	s.keys("/", "name:db-0", tcell.KeyEnter)
	s.await("namespaces[1/4]")
	s.keys("f")
	s.await("db-0 has the key 1")
	awaitFile(t, filepath.Dir(file), "console.json")
	s.keys(":pods", tcell.KeyEnter)
	s.await("<1> db-0", "<2> default")

	again := newShow(t, Config{Settings: file, Context: "east"}, 130, 30, namespaces)
	again.await("<1> db-0", "<2> default")
	again.keys("1")
	again.await("pods(db-0)")
	again.keys(":namespaces", tcell.KeyEnter, "/", "name:db-0", tcell.KeyEnter)
	again.await("namespaces[1/4]")
	again.keys("f")
	again.await("db-0 is no favourite any more")
	again.keys(":pods all", tcell.KeyEnter)
	again.await("<1> default")

	west := newShow(t, Config{Settings: file, Context: "west"}, 130, 30, namespaces)
	west.await("<1> default")
}

func TestSettingsThatCannotBeReadAreNotOverwritten(t *testing.T) {
	file := filepath.Join(t.TempDir(), "console.json")
	if err := os.WriteFile(file, []byte("{broken"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := newShow(t, Config{Settings: file}, 130, 30)
	s.await("db-0")
	s.keys(":namespaces", tcell.KeyEnter)
	s.await("namespaces[4]")
	s.keys("f")
	s.await("✗ " + file)
	if data, err := os.ReadFile(file); err != nil || string(data) != "{broken" {
		t.Errorf("%q, %v", data, err)
	}
}

func TestFilesAreReplacedAsAWhole(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a", "b")
	for _, text := range []string{"one", "two"} {
		if err := writeFile(file, []byte(text), 0o640); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(file)
		if err != nil || string(data) != text {
			t.Errorf("%q, %v", data, err)
		}
	}
	entries, _ := os.ReadDir(filepath.Dir(file))
	info, err := os.Stat(file)
	if len(entries) != 1 || err != nil || info.Mode() != 0o640 {
		t.Errorf("%d files, %v, %v", len(entries), info.Mode(), err)
	}
	if err := os.Mkdir(filepath.Join(filepath.Dir(file), "folder"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := writeFile(filepath.Join(filepath.Dir(file), "folder"), nil, 0o600); err == nil {
		t.Error("a folder is replaced")
	}
	if entries, _ = os.ReadDir(filepath.Dir(file)); len(entries) != 2 {
		t.Error("a failure leaves a file behind")
	}
}

func TestContextsAreRenamedAndForgotten(t *testing.T) {
	var told []string
	names := []string{"here", "old"}
	s := newShow(t, Config{
		Context: "here",
		Contexts: func() (out []Context, _ error) {
			for _, n := range names {
				out = append(out, Context{Name: n})
			}
			return out, nil
		},
		Rename: func(context, name string) error {
			told = append(told, context+">"+name)
			names[slices.Index(names, context)] = name
			return nil
		},
		Forget: func(context string) error {
			told = append(told, "-"+context)
			names = slices.DeleteFunc(names, func(n string) bool { return n == context })
			return nil
		},
	}, 120, 30)
	s.await("db-0")
	s.keys(":ctx", tcell.KeyEnter)
	s.await("contexts[2]", "● here", "rename")
	s.control(tcell.KeyCtrlD)
	s.await("here is the one you are in")
	s.keys("r")
	s.await("rename here", "Cancel")
	s.keys("-now", tcell.KeyEnter)
	s.await("renamed", "● here-now", "here-now  cluster.example")
	s.keys("j")
	s.control(tcell.KeyCtrlD)
	s.await("its cluster and user stay", "Cancel")
	s.keys(tcell.KeyTab, tcell.KeyEnter)
	s.await("contexts[1]", "deleted")
	s.text()
	if got := strings.Join(told, " "); got != "here>here-now -old" {
		t.Errorf("does %s", got)
	}
}
