package tui

import (
	"slices"
	"strings"

	"github.com/gdamore/tcell/v2"
)

// binding gives an action a key in a scope. Scopes: a kind ("pods"), "workload",
// "objects" (what has rows of API objects), "table", "text", "log", "global". A pane lists its scopes, the most specific
// first; within one pane a key means one thing, which a test holds. Only those of the tree cover others.
type binding struct {
	scope, key, action string
}

// bindings are k9s's keys. Where one of its keys is eaten by terminals or
// multiplexers (ctrl-s, ctrl-z, ctrl-space, shift-arrows), a second key does the
// same.
func bindings() []binding {
	return []binding{
		{"global", ":", "command"}, {"global", "?", "help"}, {"global", "esc", "back"}, {"global", "[", "previous-command"},
		{"global", "]", "next-command"}, {"global", "-", "last-view"}, {"global", "ctrl-a", "show-aliases"}, {"global", "ctrl-r", "refresh"},
		{"global", "ctrl-e", "header"}, {"global", "ctrl-g", "crumbs"}, {"global", "ctrl-c", "quit"}, {"global", "/", "filter"},
		{"global", "ctrl-u", "clear-filter"}, {"global", "ctrl-q", "clear-filter"}, {"global", "ctrl-z", "suspend"}, {"global", "!", "show-pulse"},
		{"global", "ctrl-p", "begin-here"},

		{"global", "ctrl-s", "save-screen"}, {"global", "F6", "save-screen"}, // not in editors, which save what is edited

		{"table", "enter", "enter"}, {"table", "space", "mark"}, {"table", "ctrl-space", "mark-range"}, {"table", "M", "mark-range"},
		{"table", "ctrl-\\", "clear-marks"}, {"table", "ctrl-w", "wide"}, {"table", "ctrl-t", "faults"}, {"table", "F2", "faults"},
		{"table", "N", "sort-name"}, {"table", "S", "sort-status"}, {"table", "P", "sort-namespace"},
		{"table", "shift-left", "sort-left"}, {"table", "shift-right", "sort-right"}, {"table", "<", "sort-left"}, {"table", ">", "sort-right"},
		{"table", "O", "sort-turn"},
		{"table", "w", "warp"}, {"table", "0", "all-namespaces"},
		{"table", "1", "namespace-1"}, {"table", "2", "namespace-2"}, {"table", "3", "namespace-3"}, {"table", "4", "namespace-4"},
		{"table", "5", "namespace-5"}, {"table", "6", "namespace-6"}, {"table", "7", "namespace-7"}, {"table", "8", "namespace-8"},
		{"table", "9", "namespace-9"},

		{"objects", "n", "copy-namespace"}, {"objects", "y", "yaml"}, {"objects", "d", "describe"}, {"objects", "e", "edit"},
		{"objects", "v", "show-events"}, {"objects", "ctrl-d", "delete"}, {"objects", "J", "owner"},
		{"objects", "H", "columns"}, {"objects", "W", "why"}, {"objects", "T", "journey"},

		{"aged", "A", "sort-age"}, // every table but that of aliases
		{"aliases", "R", "sort-name"}, {"aliases", "C", "sort-aliases"}, {"aliases", "A", "sort-group"},

		{"measured", "C", "sort-cpu"}, {"measured", "Z", "sort-memory"}, {"usage", "b", "usage-by"},
		{"xray", "space", "fold"}, {"xray", "x", "fold-all"}, // before those of the line's kind
		{"workloads", "K", "sort-kind"}, {"workloads", "R", "sort-ready"},

		{"plain", "c", "copy-name"}, // every table but the nodes', where k9s has cordon

		{"pods", "l", "logs"}, {"pods", "p", "previous"}, {"pods", "s", "shell"}, {"pods", "a", "attach"}, {"pods", "D", "debug"}, {"pods", "F", "port-forward"},
		{"pods", "o", "show-node"}, {"pods", "ctrl-k", "kill"}, {"pods", "z", "purge"}, {"pods", "f", "show-forwards"},
		{"containers", "l", "logs"}, {"containers", "p", "previous"}, {"containers", "s", "shell"}, {"containers", "a", "attach"}, {"containers", "D", "debug"},
		{"users", "V", "view-as"}, {"groups", "V", "view-as"}, {"holders", "V", "view-as"}, {"serviceaccounts", "V", "view-as"},
		{"services", "F", "port-forward"}, {"services", "f", "show-forwards"},

		{"portforwards", "ctrl-d", "stop-forward"}, {"holders", "r", "show-role"}, {"holders", "b", "show-binding"},

		{"scalable", "s", "scale"}, {"workload", "r", "restart"}, {"workload", "l", "logs"}, {"workload", "p", "previous"},
		{"deployments.apps", "z", "show-replicasets"}, {"workload", "i", "set-image"}, {"replicasets.apps", "ctrl-l", "rollback"},
		{"cronjobs.batch", "t", "trigger"}, {"cronjobs.batch", "s", "suspend-cronjob"},
		{"nodes", "c", "cordon"}, {"nodes", "u", "uncordon"}, {"nodes", "r", "drain"},
		{"secrets", "x", "decode"}, {"secrets", "u", "used-by"}, {"configmaps", "u", "used-by"}, {"serviceaccounts", "u", "used-by"},
		{"persistentvolumeclaims", "u", "used-by"}, {"priorityclasses.scheduling.k8s.io", "u", "used-by"},
		{"namespaces", "u", "use"}, {"namespaces", "f", "favourite"},
		{"nodes", "s", "node-shell"}, {"pods", "t", "transfer"}, {"containers", "t", "transfer"}, {"services", "b", "bench"},
		{"contexts", "r", "rename-context"}, {"contexts", "ctrl-d", "delete-context"},
		{"screendumps", "ctrl-d", "delete-save"},
		{"files", "a", "apply-file"}, {"files", "d", "delete-file"}, {"files", "e", "edit-file"}, {"files", "y", "view-file"},
		{"releases", "r", "release-history"}, {"releases", "v", "release-values"}, {"releases", "y", "release-manifest"},
		{"revisions", "r", "release-rollback"}, {"revisions", "v", "release-values"}, {"revisions", "y", "release-manifest"},

		{"text", "n", "next-match"}, {"text", "N", "previous-match"}, {"text", "c", "copy-text"}, {"text", "w", "wrap"},
		{"text", "f", "full-screen"}, {"yaml", "r", "auto-refresh"}, {"describe", "r", "auto-refresh"},
		{"yaml", "m", "managed-fields"}, {"yaml", "x", "decode"}, {"yaml", "e", "edit"},
		{"editor", "ctrl-s", "save"}, {"editor", "F2", "save"}, {"editor", "ctrl-f", "search"}, {"editor", "F3", "next-found"},
		{"editor", "esc", "cancel-edit"}, {"editor", "ctrl-c", "cancel-edit"},
		{"review", "ctrl-s", "save"}, {"review", "F2", "save"}, {"review", "e", "edit-again"}, {"review", "/", "filter"},
		{"review", "esc", "cancel-edit"}, {"review", "ctrl-c", "cancel-edit"},
		{"conflicts", "m", "mine"}, {"conflicts", "t", "theirs"}, {"conflicts", "M", "all-mine"}, {"conflicts", "T", "all-theirs"},
		{"conflicts", "enter", "save"}, {"conflicts", "ctrl-s", "save"}, {"conflicts", "F2", "save"}, {"conflicts", "e", "edit-again"},
		{"conflicts", "Down", "next-conflict"}, {"conflicts", "Up", "previous-conflict"}, {"conflicts", "j", "next-conflict"},
		{"conflicts", "k", "previous-conflict"}, {"conflicts", "tab", "next-conflict"},
		{"conflicts", "esc", "cancel-edit"}, {"conflicts", "ctrl-c", "cancel-edit"},
		{"log", "0", "tail"}, {"log", "1", "head"}, {"log", "2", "since-1m"}, {"log", "3", "since-5m"}, {"log", "4", "since-15m"},
		{"log", "5", "since-30m"}, {"log", "6", "since-1h"}, {"log", "s", "follow"}, {"log", "G", "now"}, {"log", "End", "now"}, {"log", "w", "wrap"}, {"log", "t", "timestamps"},
		{"log", "f", "full-screen"}, {"log", "m", "mark-log"}, {"log", "c", "copy-text"}, {"log", "C", "clear-log"}, {"log", "a", "all-containers"},
		{"log", "p", "previous"}, {"log", "n", "next-match"}, {"log", "N", "previous-match"}, {"log", "x", "filter-log"}, {"log", "L", "lock-column"},
		{"pulse", "enter", "enter"}, {"map", "enter", "enter"}, {"pulse", "W", "why"}, {"why", "m", "copy-mend"},
		{"pulse", "1", "problem-1"}, {"pulse", "2", "problem-2"}, {"pulse", "3", "problem-3"}, {"pulse", "4", "problem-4"},
		{"pulse", "5", "problem-5"}, {"pulse", "6", "problem-6"}, {"pulse", "7", "problem-7"}, {"pulse", "8", "problem-8"},
		{"pulse", "9", "problem-9"},
	}
}

// editScopes are those of panes with what is not saved yet.
var editScopes = []string{"editor", "review", "conflicts"}

// keyScopes are where the keys of a pane with these scopes are looked up. In an
// editor, letters are text; and what is edited must not be left by accident.
func keyScopes(scopes []string) []string {
	if slices.Contains(editScopes, scopes[0]) {
		return scopes
	}
	return append(scopes, "global")
}

// lookup finds the action of a key for a pane with these scopes.
func lookup(all []binding, scopes []string, key string) (string, bool) {
	for _, scope := range scopes {
		for _, b := range all {
			if b.scope == scope && b.key == key {
				return b.action, true
			}
		}
	}
	return "", false
}

// keyName is a key event as bindings write it.
func keyName(e *tcell.EventKey) string {
	switch k := e.Key(); {
	case k == tcell.KeyRune && e.Modifiers()&tcell.ModAlt != 0:
		return "alt-" + string(e.Rune())
	case k == tcell.KeyRune && e.Rune() == ' ':
		if e.Modifiers()&tcell.ModCtrl != 0 {
			return "ctrl-space"
		}
		return "space"
	case k == tcell.KeyRune:
		return string(e.Rune())
	case k == tcell.KeyEnter:
		return "enter"
	case k == tcell.KeyEscape:
		return "esc"
	case k == tcell.KeyTab:
		return "tab"
	case k == tcell.KeyCtrlSpace:
		return "ctrl-space"
	case k == tcell.KeyCtrlBackslash:
		return "ctrl-\\"
	case k >= tcell.KeyCtrlA && k <= tcell.KeyCtrlZ:
		return "ctrl-" + string(rune('a'+k-tcell.KeyCtrlA))
	case k == tcell.KeyLeft && e.Modifiers()&tcell.ModShift != 0:
		return "shift-left"
	case k == tcell.KeyRight && e.Modifiers()&tcell.ModShift != 0:
		return "shift-right"
	default:
		return tcell.KeyNames[k]
	}
}

// keyLabel is a key as the header and the help write it.
func keyLabel(key string) string {
	if len(key) == 1 && key[0] >= 'A' && key[0] <= 'Z' {
		return "shift-" + strings.ToLower(key)
	}
	return key
}
