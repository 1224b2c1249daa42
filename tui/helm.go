package tui

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"orrery.dev/api"
)

// release is a revision of what Helm installed, as its Secret tells it.
type release struct {
	Name, Namespace string
	Version         int
	Manifest        string
	Config          map[string]any
	Info            struct {
		Status, Description string
		LastDeployed        time.Time `json:"last_deployed"`
	}
	Chart struct {
		Metadata struct{ Name, Version, AppVersion string }
	}
}

func helmActions() []action {
	on := []string{"releases", "revisions"}
	show := func(what func(r *release) (string, error)) func(*app, call) {
		return one(func(a *app, t target) { a.showRelease(t, what) })
	}
	return []action{
		{name: "release-history", hint: "history", help: "all revisions of the release", on: []string{"releases"}, verb: "list", resource: "secrets", run: one(func(a *app, t target) { a.push(a.newReleaseTable(t.namespace, t.labels["name"])) })},
		{name: "release-rollback", hint: "roll back", help: "go back to this revision of the release, with your helm", on: []string{"revisions"}, verb: "create", resource: "secrets", writes: true,
			instead: "use helm rollback there", run: one((*app).askRelease)},
		{name: "release-values", hint: "values", help: "the values that the release was given", on: on, run: show(func(r *release) (string, error) {
			text, err := yaml.Marshal(r.Config)
			return string(text), err
		})},
		{name: "release-manifest", hint: "manifest", help: "the objects of the release, as it was installed", on: on, run: show(func(r *release) (string, error) { return r.Manifest, nil })},
	}
}

// newReleases is the table of the releases, each in its newest revision.
func (a *app) newReleases() *tablePane { return a.newReleaseTable(a.namespace, "") }

// newReleaseTable has the revisions of one release, or the newest of all.
func (a *app) newReleaseTable(namespaces, name string) *tablePane {
	c, plural := a.cluster, "releases"
	if name != "" {
		plural = "revisions"
	}
	t := a.newList(plural, []string{"Name", "Namespace", "Revision", "Status", "Chart", "App", "Updated", "Description"}, 5*time.Second, func(ctx context.Context) ([]api.Row, error) {
		all, err := c.releases(ctx, namespaces, name)
		if name == "" {
			all = newest(all)
		}
		rows := []api.Row{}
		for i := range all {
			rows = append(rows, all[i].row())
		}
		return rows, err
	})
	if name != "" {
		t.parent = &origin{name: name}
		t.rows.want.sortBy, t.rows.want.descending = "revision", true
	}
	t.opens = func(string) { a.do("release-manifest") }
	return t
}

// releases are those in some namespaces; "" is all.
func (c *cluster) releases(ctx context.Context, namespaces, name string) (out []release, err error) {
	selector := "owner=helm"
	if name != "" {
		selector += ",name=" + name
	}
	for namespace := range strings.SplitSeq(namespaces, ",") {
		list, err := c.kube.CoreV1().Secrets(namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
		if err != nil {
			return nil, err
		}
		for i := range list.Items {
			r, err := readRelease(&list.Items[i])
			if err != nil {
				return nil, err
			}
			out = append(out, r)
		}
	}
	return out, nil
}

// readRelease unpacks a Secret of Helm's: JSON, compressed, in base64.
func readRelease(s *corev1.Secret) (r release, err error) {
	packed, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, bytes.NewReader(s.Data["release"])))
	if err == nil {
		err = json.NewDecoder(io.LimitReader(packed, 64<<20)).Decode(&r)
	}
	if err != nil {
		return r, fmt.Errorf("release %s/%s: %w", s.Namespace, s.Name, err)
	}
	r.Namespace = s.Namespace
	return r, nil
}

func newest(all []release) (out []release) {
	slices.SortFunc(all, func(x, y release) int {
		return cmp.Or(cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Name, y.Name), cmp.Compare(y.Version, x.Version))
	})
	return slices.CompactFunc(all, func(x, y release) bool { return x.Namespace == y.Namespace && x.Name == y.Name })
}

func (r *release) row() api.Row {
	state := api.StateDone
	switch {
	case r.Info.Status == "deployed":
		state = api.StateOK
	case r.Info.Status == "failed":
		state = api.StateError
	case strings.HasPrefix(r.Info.Status, "pending"):
		state = api.StateProgressing
	}
	chart := r.Chart.Metadata
	row := listRow(state, r.Name, r.Namespace, fmt.Sprint(r.Version), r.Info.Status, chart.Name+"-"+chart.Version, chart.AppVersion, r.Info.LastDeployed.Format(time.DateTime), r.Info.Description)
	row.UID = fmt.Sprintf("%s/%s.%d", r.Namespace, r.Name, r.Version)
	row.Namespace = r.Namespace
	row.Labels = map[string]string{"name": r.Name, "revision": fmt.Sprint(r.Version), "secret": fmt.Sprintf("sh.helm.release.v1.%s.v%d", r.Name, r.Version)}
	return row
}

// askRelease has the user's own helm go back to a revision, once it is shown what that
// changes: hooks, waiting and the history are helm's business. Its command can be had
// where helm is missing.
func (a *app) askRelease(t target) {
	name := t.labels["name"]
	revision, _ := strconv.Atoi(t.labels["revision"])
	args := []string{"rollback", name, strconv.Itoa(revision), "--namespace", t.namespace}
	line := "helm " + strings.Join(args, " ")
	a.async(func(ctx context.Context) func() {
		changes, err := a.cluster.releaseChanges(ctx, t)
		return func() {
			if err != nil {
				a.fail(fmt.Errorf("%s: %w", t, err))
				return
			}
			q := question{title: a.words.say("roll %s back to revision %d", name, revision), text: append(changes, "", "$ "+line), yes: "OK", do: func(string) { a.runHelm(args) }}
			if a.config.Helm == nil {
				q.text, q.yes = append(q.text, a.words.say("helm is not on this machine; copy its command for where it is")), "copy"
				q.do = func(string) { a.copy(line) }
			}
			a.question(q)
		}
	})
}

// runHelm takes as long as helm does: it may wait for hooks.
func (a *app) runHelm(args []string) {
	a.note("helm is at work")
	a.async(func(ctx context.Context) func() {
		err := a.config.Helm(ctx, a.config.Context, args...)
		return func() {
			if err != nil {
				a.fail(err)
				return
			}
			a.note("rolled back")
		}
	})
}

// releaseChanges is what of a release's manifest another revision has otherwise.
func (c *cluster) releaseChanges(ctx context.Context, to target) ([]string, error) {
	all, err := c.releases(ctx, to.namespace, to.labels["name"])
	if err != nil {
		return nil, err
	}
	now := newest(slices.Clone(all))
	then := slices.IndexFunc(all, func(r release) bool { return fmt.Sprint(r.Version) == to.labels["revision"] })
	if then < 0 {
		return nil, errors.New("the revision is gone")
	}
	return shownChanges(now[0].Manifest, all[then].Manifest), nil
}

func (a *app) showRelease(t target, what func(r *release) (string, error)) {
	c := a.cluster
	p := newText(a, t.String(), func(ctx context.Context) ([]string, error) {
		secret, err := c.kube.CoreV1().Secrets(t.namespace).Get(ctx, t.labels["secret"], metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		r, err := readRelease(secret)
		if err != nil {
			return nil, err
		}
		text, err := what(&r)
		return strings.Split(strings.TrimSpace(text), "\n"), err
	})
	p.wrap = false
	p.pager.paint = a.theme.paintYAML
	a.push(p)
}
