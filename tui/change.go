package tui

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubectl/pkg/drain"

	"orrery.dev/api"
)

// changeActions change the cluster. Those that destroy ask first, and Cancel is
// what Enter means.
func changeActions() []action {
	workload := []string{"workload"}
	return []action{
		{name: "edit", hint: "edit", help: "edit in your editor, or here; the server checks before it is saved", on: []string{"objects", "yaml"}, verb: "update", writes: true, run: func(a *app, c call) {
			if t, ok := a.top().(*textPane); ok {
				a.edit(t.of)
				return
			}
			one((*app).edit)(a, c)
		}},
		{name: "delete", hint: "delete", help: "delete the marked objects, after asking", on: []string{"objects"}, verb: "delete", writes: true, run: func(a *app, c call) { a.askDelete(c, false) }},
		{name: "kill", help: "delete pods at once, after asking", on: []string{"pods"}, verb: "delete", writes: true, run: func(a *app, c call) { a.askDelete(c, true) }},
		{name: "purge", help: "delete the finished pods of those shown, after asking", on: []string{"pods"}, verb: "delete", writes: true, run: (*app).askPurge},
		{name: "scale", hint: "scale", help: "change the number of replicas", on: []string{"scalable"}, verb: "patch", sub: "scale", writes: true, run: (*app).askScale},
		{name: "restart", hint: "restart", help: "replace all pods, as kubectl rollout restart does", on: workload, verb: "patch", writes: true, run: (*app).askRestart},
		{name: "set-image", help: "change a container's image", on: workload, verb: "patch", writes: true, run: one((*app).askImage)},
		{name: "undo", help: "roll back to the revision before, as kubectl rollout undo does", on: workload, verb: "patch", writes: true, run: one(func(a *app, t target) { a.askUndo(t, "") })},
		{name: "rollback", hint: "roll back", help: "roll the Deployment back to this ReplicaSet", on: []string{"replicasets.apps"}, verb: "patch", resource: "deployments.apps", writes: true, run: one((*app).askRollback)},
		{name: "trigger", hint: "trigger", help: "run the CronJob now", on: []string{"cronjobs.batch"}, verb: "create", resource: "jobs.batch", writes: true, run: one((*app).trigger)},
		{name: "suspend-cronjob", hint: "suspend", help: "suspend or resume the CronJob", on: []string{"cronjobs.batch"}, verb: "patch", writes: true, run: one((*app).suspendCronJob)},
		{name: "cordon", hint: "cordon", help: "no new pods on the node", on: []string{"nodes"}, verb: "patch", writes: true, run: func(a *app, c call) { a.cordon(c, true) }},
		{name: "uncordon", hint: "uncordon", help: "new pods on the node again", on: []string{"nodes"}, verb: "patch", writes: true, run: func(a *app, c call) { a.cordon(c, false) }},
		{name: "drain", hint: "drain", help: "cordon the node and evict its pods", on: []string{"nodes"}, verb: "patch", writes: true, run: one((*app).askDrain)},
		{name: "shell", hint: "shell", help: "a shell in the container", on: []string{"pods", "containers"}, verb: "create", sub: "exec", resource: "pods", writes: true, run: one((*app).shell)},
		{name: "attach", help: "attach to the container's terminal", on: []string{"pods", "containers"}, verb: "create", sub: "attach", resource: "pods", writes: true, run: one((*app).attach)},
		{name: "port-forward", hint: "port-forward", help: "forward a local port", on: []string{"pods", "services"}, instead: "use kubectl port-forward there", verb: "create", sub: "portforward", resource: "pods", writes: true, run: one((*app).askForward)},
		{name: "stop-forwards", help: "end all port-forwards", run: func(a *app, _ call) { a.forwards.stop(func(*forward) bool { return true }) }},
		{name: "stop-forward", hint: "stop", help: "end the port-forward", on: []string{"portforwards"}, run: func(a *app, c call) {
			a.forwards.stop(func(f *forward) bool { return slices.ContainsFunc(c.on, func(t target) bool { return t.uid == f.id }) })
			c.table.reload()
		}},
	}
}

// typedKind says which kinds the name must be typed to delete one: they take
// much down with them.
func typedKind(k kind) bool {
	switch k.scope() {
	case "namespaces", "nodes", "persistentvolumes", "persistentvolumeclaims", "customresourcedefinitions.apiextensions.k8s.io":
		return true
	}
	return false
}

func (a *app) askDelete(c call, now bool) {
	if len(c.on) == 0 {
		return
	}
	a.async(func(ctx context.Context) func() {
		lost := a.blastLines(a.blast(ctx, c.on, false))
		return func() { a.deleteQuestion(c, now, lost) }
	})
}

// askPurge deletes those of the visible pods that have finished. Rows tell how a
// pod looks, only the server its phase.
func (a *app) askPurge(c call) {
	shown := map[types.UID]target{}
	for i := range c.table.snap.rows {
		t := a.targetOf(c.table, &c.table.snap.rows[i])
		shown[types.UID(t.uid)] = t
	}
	a.async(func(ctx context.Context) func() {
		done := call{table: c.table}
		for namespace := range strings.SplitSeq(c.table.in(), ",") {
			pods, err := a.cluster.kube.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{FieldSelector: "status.phase!=Running,status.phase!=Pending"})
			if err != nil {
				return func() { a.fail(err) }
			}
			for _, p := range pods.Items {
				if t, ok := shown[p.UID]; ok && (p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed) {
					done.on = append(done.on, t)
				}
			}
		}
		return func() {
			if len(done.on) == 0 {
				a.note("%s", a.words.say("no pod shown has finished"))
				return
			}
			a.deleteQuestion(done, false, nil)
		}
	})
}

// blast is what goes with objects.
func (a *app) blast(ctx context.Context, on []target, drain bool) (*api.Blast, error) {
	of := api.BlastOf{Drain: drain}
	for _, t := range on {
		of.Objects = append(of.Objects, api.ObjectRef{Group: t.kind.group, Resource: t.kind.plural, Kind: t.kind.name, Namespace: t.namespace, Name: t.name})
	}
	var b api.Blast
	return &b, a.consult(ctx, api.BlastPath, of, &b)
}

// blastLines tell that in a dialog, and what is plain last, if there is room.
func (a *app) blastLines(b *api.Blast, err error) []string {
	if err != nil {
		return []string{a.shared.Say("blast.unknown", map[string]string{"why": err.Error()}), ""}
	}
	var grave, plain []string
	for _, f := range b.Findings {
		if f.State == api.WhyOK {
			plain = append(plain, "· "+a.shared.Finding(f))
		} else {
			grave = append(grave, whyGlyph(f.State)+" "+a.shared.Finding(f))
		}
	}
	const most = 10
	if over := len(grave) + len(plain) - most; over > 1 {
		left := max(len(plain)-over, 0)
		plain = append(plain[:left], a.shared.Finding(api.Finding{Code: "andMore", Params: map[string]string{"count": fmt.Sprint(over)}}))
	}
	return append(append(grave, plain...), "")
}

func (a *app) deleteQuestion(c call, now bool, lost []string) {
	k := c.on[0].kind
	q := question{title: fmt.Sprintf("%s %d %s", a.words.say("Delete"), len(c.on), k.plural), text: append(a.names(c.on), ""), yes: "Delete"}
	if len(c.on) == 1 {
		q.title = fmt.Sprintf("%s %s", a.words.say("Delete"), k.singular)
	}
	q.text = append(q.text, lost...)
	if mixed(c.on) {
		q.title = fmt.Sprintf("%s %d", a.words.say("Delete"), len(c.on))
	}
	if slices.ContainsFunc(c.on, func(t target) bool { return typedKind(t.kind) }) {
		q.must = c.on[0].name
		if len(c.on) > 1 {
			q.must = fmt.Sprint(len(c.on))
		}
	}
	how := metav1.DeletePropagationBackground
	if now {
		q.text = append(q.text, a.words.say("without waiting for them to end"), "")
	} else if k.scope() != "pods" { // which own nothing
		policies := []metav1.DeletionPropagation{metav1.DeletePropagationBackground, metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan}
		q.choice, q.options = "what it owns", []string{a.words.say("goes after it (Background)"), a.words.say("goes before it (Foreground)"), a.words.say("stays (Orphan)")}
		q.picked = func(i int) { how = policies[i] }
	}
	on := c.on
	q.do = func(string) {
		if c.table != nil {
			clear(c.table.marks)
		}
		a.call(a.words.say("deleted"), func(ctx context.Context) error {
			var errs []error
			for _, t := range on {
				errs = append(errs, a.cluster.remove(ctx, t, how, now))
			}
			return errors.Join(errs...)
		})
	}
	a.question(q)
}

// remove deletes exactly the object that was on screen, not a namesake that
// came after it.
func (c *cluster) remove(ctx context.Context, t target, how metav1.DeletionPropagation, now bool) error {
	opts := metav1.DeleteOptions{PropagationPolicy: &how}
	if t.uid != "" {
		uid := types.UID(t.uid)
		opts.Preconditions = &metav1.Preconditions{UID: &uid}
	}
	if now {
		opts.GracePeriodSeconds = new(int64)
	}
	return c.of(t.kind, t.namespace).Delete(ctx, t.name, opts)
}

func (c *cluster) patch(ctx context.Context, t target, kind types.PatchType, body any, sub ...string) error {
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	_, err = c.of(t.kind, t.namespace).Patch(ctx, t.name, kind, data, metav1.PatchOptions{FieldManager: "orrery-tui"}, sub...)
	return err
}

type fields = map[string]any

func (a *app) askScale(c call) {
	if len(c.on) == 0 {
		return
	}
	if len(c.args) == 1 { // ":scale 3"
		a.scale(c.on, c.args[0])
		return
	}
	a.async(func(ctx context.Context) func() {
		scale, err := a.cluster.of(c.on[0].kind, c.on[0].namespace).Get(ctx, c.on[0].name, metav1.GetOptions{}, "scale")
		return func() {
			if err != nil {
				a.fail(err)
				return
			}
			spec, _ := scale.Object["spec"].(fields)
			a.question(question{title: a.words.say("scale"), text: append(a.names(c.on), ""), ask: "replicas", value: fmt.Sprint(orZero(spec["replicas"])), yes: "OK",
				do: func(typed string) { a.scale(c.on, typed) }})
		}
	})
}

func orZero(v any) any {
	if v == nil {
		return 0
	}
	return v
}

func (a *app) scale(on []target, typed string) {
	n, err := strconv.ParseInt(strings.TrimSpace(typed), 10, 32)
	if err != nil || n < 0 {
		a.fail(fmt.Errorf("scale: %s", a.words.say("%q is not a number of replicas", typed)))
		return
	}
	a.call(a.words.say("scaled"), func(ctx context.Context) error {
		for _, t := range on {
			if err := a.cluster.patch(ctx, t, types.MergePatchType, fields{"spec": fields{"replicas": n}}, "scale"); err != nil {
				return fmt.Errorf("scale %s: %w", t, err)
			}
		}
		return nil
	})
}

func (a *app) askRestart(c call) {
	if len(c.on) == 0 {
		return
	}
	a.question(question{title: a.words.say("restart"), text: append(a.names(c.on), "", a.words.say("replaces all their pods")), yes: "OK", do: func(string) {
		a.call(a.words.say("restarted"), func(ctx context.Context) error {
			stamp := fields{"kubectl.kubernetes.io/restartedAt": time.Now().Format(time.RFC3339)}
			for _, t := range c.on {
				body := fields{"spec": fields{"template": fields{"metadata": fields{"annotations": stamp}}}}
				if err := a.cluster.patch(ctx, t, types.StrategicMergePatchType, body); err != nil {
					return fmt.Errorf("restart %s: %w", t, err)
				}
			}
			return nil
		})
	}})
}

func (a *app) askImage(t target) {
	a.async(func(ctx context.Context) func() {
		pod, err := a.cluster.template(ctx, t)
		return func() {
			if err != nil {
				a.fail(err)
				return
			}
			images := map[string]string{}
			var options []string
			for _, c := range pod.Containers {
				images[c.Name] = c.Image
				options = append(options, c.Name)
			}
			a.choose("container", options, func(name string) {
				a.question(question{title: a.words.say("image of %s", name), ask: "image", value: images[name], yes: "OK", do: func(image string) {
					a.call("image set", func(ctx context.Context) error {
						containers := []fields{{"name": name, "image": image}}
						return a.cluster.patch(ctx, t, types.StrategicMergePatchType, fields{"spec": fields{"template": fields{"spec": fields{"containers": containers}}}})
					})
				}})
			})
		}
	})
}

// template is the pod that a workload makes, or the pod itself.
func (c *cluster) template(ctx context.Context, t target) (*corev1.PodSpec, error) {
	o, err := c.of(t.kind, t.namespace).Get(ctx, t.name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	data, err := json.Marshal(o.Object)
	if err != nil {
		return nil, err
	}
	var shape struct {
		Spec struct {
			corev1.PodSpec
			Template struct{ Spec corev1.PodSpec }
		}
	}
	if err := json.Unmarshal(data, &shape); err != nil {
		return nil, fmt.Errorf("%s: %w", t, err)
	}
	if t.kind.plural == "pods" {
		return &shape.Spec.PodSpec, nil
	}
	return &shape.Spec.Template.Spec, nil
}

func (a *app) trigger(t target) {
	a.call("job created", func(ctx context.Context) error {
		cron, err := a.cluster.kube.BatchV1().CronJobs(t.namespace).Get(ctx, t.name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		job := &batchv1.Job{
			ObjectMeta: metav1.ObjectMeta{
				GenerateName: t.name + "-manual-", Namespace: t.namespace, Labels: cron.Spec.JobTemplate.Labels,
				Annotations:     map[string]string{"cronjob.kubernetes.io/instantiate": "manual"},
				OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(cron, batchv1.SchemeGroupVersion.WithKind("CronJob"))},
			},
			Spec: cron.Spec.JobTemplate.Spec,
		}
		_, err = a.cluster.kube.BatchV1().Jobs(t.namespace).Create(ctx, job, metav1.CreateOptions{})
		return err
	})
}

func (a *app) suspendCronJob(t target) {
	a.call("suspend turned", func(ctx context.Context) error {
		cron, err := a.cluster.kube.BatchV1().CronJobs(t.namespace).Get(ctx, t.name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		now := cron.Spec.Suspend != nil && *cron.Spec.Suspend
		return a.cluster.patch(ctx, t, types.MergePatchType, fields{"spec": fields{"suspend": !now}})
	})
}

func (a *app) cordon(c call, on bool) {
	word := "uncordoned"
	if on {
		word = "cordoned"
	}
	a.call(word, func(ctx context.Context) error {
		for _, t := range c.on {
			if err := a.cluster.patch(ctx, t, types.StrategicMergePatchType, fields{"spec": fields{"unschedulable": on}}); err != nil {
				return fmt.Errorf("%s: %w", t, err)
			}
		}
		return nil
	})
}

// askDrain has the node's name typed where something does not come back.
func (a *app) askDrain(t target) {
	a.async(func(ctx context.Context) func() {
		b, err := a.blast(ctx, []target{t}, true)
		return func() {
			q := question{title: a.words.say("drain") + " " + t.name, yes: "drain", text: a.blastLines(b, err), do: func(string) { a.drain(t) }}
			if err != nil || slices.ContainsFunc(b.Findings, func(f api.Finding) bool { return f.State == api.WhyBroken }) {
				q.must = t.name
			}
			a.question(q)
		}
	})
}

// drain shows its progress as a text.
func (a *app) drain(t target) {
	p := a.newWork("drain "+t.name, func() {}) // it goes on without
	a.push(p)
	a.async(func(ctx context.Context) func() {
		err := a.cluster.drain(ctx, t.name, p.lines)
		return func() {
			if err != nil {
				p.lines.add("✗ " + a.words.told(err.Error()))
				a.fail(err)
				return
			}
			p.lines.add("● " + a.words.say("drained"))
		}
	})
}

func (c *cluster) drain(ctx context.Context, name string, out *lines) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	node, err := c.kube.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	h := &drain.Helper{Ctx: ctx, Client: c.kube, GracePeriodSeconds: -1, IgnoreAllDaemonSets: true, DeleteEmptyDirData: true, Force: true,
		Out: lineWriter{out}, ErrOut: lineWriter{out}}
	if err := drain.RunCordonOrUncordon(h, node, true); err != nil {
		return err
	}
	out.add("cordoned")
	return drain.RunNodeDrain(h, name)
}

// lineWriter adds what is written to lines.
type lineWriter struct{ to *lines }

func (w lineWriter) Write(p []byte) (int, error) {
	w.to.add(strings.Split(strings.TrimRight(string(p), "\n"), "\n")...)
	return len(p), nil
}
