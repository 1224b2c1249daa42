package tui

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/gdamore/tcell/v2"
	"k8s.io/client-go/rest"

	"orrery.dev/client"
)

// Config is what the console is told.
type Config struct {
	REST *rest.Config
	// self is what REST was before the cluster was to be seen as another user.
	self *rest.Config
	// Instead answers what only orrery's API server does, where another is asked.
	Instead http.Handler
	// Context is the name of REST's cluster where the user's kubeconfig has several;
	// Contexts are all of them, and Connect leads to another. Both may be nil.
	Context  string
	Contexts func() ([]Context, error)
	Connect  func(context string) (Connection, error)
	// Rename and Forget change the user's kubeconfig; both may be nil.
	Rename func(context, name string) error
	Forget func(context string) error
	// Namespace to begin with; empty is all.
	Namespace string
	// Command to begin with, as typed after ":"; empty is the pods.
	Command string
	// Helm runs the user's helm for a context; nil where there is none.
	Helm func(ctx context.Context, context string, args ...string) error
	// ReadOnly refuses every action that changes the cluster.
	ReadOnly bool
	// Language is a locale name; "zh_TW" and "zh-Hant" give Traditional Chinese,
	// anything else English.
	Language string
	NoColor  bool
	// Theme is one of themeNames; empty or "auto" is by the terminal's background.
	Theme string
	// ASCII is for terminals that show nothing else.
	ASCII bool
	// Editor is the command that edits a file; empty is an editor of the console's own.
	Editor string
	// State is the folder of what is saved, and Settings the file of what is
	// remembered; empty is nowhere.
	State, Settings string
	// NodeShellImage is what a shell on a node runs in; empty is nodeShellImage.
	NodeShellImage string
	// Terminal is where the console is shown; nil is the process's own. Another is
	// that of somebody elsewhere, who has no business with this machine: such a
	// console starts no programs, touches no files and listens on no ports.
	Terminal tcell.Tty
	// Machine is the name of this one, for the user of another Terminal.
	Machine string
	// Term and ColorTerm are what another Terminal is and can do.
	Term, ColorTerm string
}

// FromEnvironment fills in what the user's environment says: language, terminal,
// its colours and characters, editor and, on the user's own machine, places for files.
func (c *Config) FromEnvironment(getenv func(string) string) {
	first := func(names ...string) string {
		for _, n := range names {
			if v := getenv(n); v != "" {
				return v
			}
		}
		return ""
	}
	c.Language = first("LC_ALL", "LC_MESSAGES", "LANG")
	c.NoColor = getenv("NO_COLOR") != ""
	c.ASCII = c.ASCII || asciiOnly(first("LC_ALL", "LC_CTYPE", "LANG"), getenv("TERM"))
	if (c.Theme == "" || c.Theme == themeAuto) && lightBackground(getenv("COLORFGBG")) {
		c.Theme = "light"
	}
	c.Editor = first("KUBE_EDITOR", "VISUAL", "EDITOR")
	c.Term, c.ColorTerm = getenv("TERM"), getenv("COLORTERM")
	if c.Terminal == nil {
		c.State = userFolder(getenv("XDG_STATE_HOME"), getenv("HOME"), ".local/state")
		if c.Settings = userFolder(getenv("XDG_CONFIG_HOME"), getenv("HOME"), ".config"); c.Settings != "" {
			c.Settings += "/console.json"
		}
	}
}

// userFolder is ours within one of the user's.
func userFolder(chosen, home, usual string) string {
	switch {
	case strings.HasPrefix(chosen, "/"): // others are void, by the specification
		return chosen + "/orrery"
	case home != "":
		return home + "/" + usual + "/orrery"
	}
	return ""
}

// Run shows the console until the user quits or ctx ends. An API server that is
// away does not end it.
func Run(ctx context.Context, cfg Config) error {
	if _, ok := paletteOf(cfg.Theme); !ok {
		return fmt.Errorf("theme: there is no %q; %s, %s", cfg.Theme, themeAuto, strings.Join(themeNames(), ", "))
	}
	under, ears, err := cfg.screen()
	if err != nil {
		return err
	}
	k, err := newCluster(cfg.REST, cfg.Instead)
	if err != nil {
		return err
	}
	a := newApp(cfg, k)
	a.ears = ears
	a.feed = client.NewStream(cfg.REST, cfg.Instead, a.dirty)
	return a.run(ctx, under)
}

// hostOf is the server's address without scheme, for the header.
func hostOf(cfg *rest.Config) string {
	_, host, ok := strings.Cut(cfg.Host, "://")
	if !ok {
		return cfg.Host
	}
	return host
}

// clipboard hands text to the terminal (OSC 52).
func (a *app) clipboard(text string) { a.under.SetClipboard([]byte(text)) }
