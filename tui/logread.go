package tui

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"orrery.dev/api"
)

const (
	logMaxPods   = 20
	logBatchEach = 50 * time.Millisecond
	logRetry     = time.Second
)

// stampEnd is what a log line's time of writing ends with in lines.
const stampEnd = "\x1f"

// divider is a line of our own within a log. No filter hides it.
func divider(text string) string {
	return dividerHead + " " + text + " ──\x1b[0m"
}

const dividerHead = "\x1b[2m──"

// cutStamp takes the time of writing off a line that has one.
func cutStamp(line string) (stamp, text string) {
	stamp, text, ok := strings.Cut(line, stampEnd)
	if !ok {
		return "", line
	}
	return stamp, text
}

// logReader follows the logs of pods and merges them into lines. It always asks
// for the times of the lines: after a break they say where to go on, so that
// none is lost or comes twice, and they tell how far behind now we are.
type logReader struct {
	cluster *cluster
	of      target
	to      *lines
	lag     *lag
	words   words
	options corev1.PodLogOptions
}

// logSource is one container's log, and how far it is read.
type logSource struct {
	pod, container, prefix string
	restarts               int32
	last                   time.Time // of the last line
	same                   int       // how many lines of that time there were
}

// run reads until ctx ends, or until there is nothing more to come.
func (r *logReader) run(ctx context.Context) {
	var work sync.WaitGroup
	defer work.Wait()
	known := map[string]bool{}
	for {
		sources, err := r.sources(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && len(known) == 0:
			r.to.add("✗ " + r.words.told(err.Error()))
		case err == nil && len(sources) == 0 && len(known) == 0:
			r.to.add("(" + r.words.say("no containers") + ")")
		}
		began := len(known) > 0
		for _, s := range sources {
			id := s.pod + "/" + s.container
			if known[id] {
				continue
			}
			known[id] = true
			if began {
				r.to.add(divider(s.prefix + r.words.say("is new")))
			}
			work.Go(func() { r.follow(ctx, s) })
		}
		if r.single() && err == nil || !r.options.Follow {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(3 * logRetry):
		}
	}
}

// single says that the log is of one pod, rather than of a workload whose pods
// are replaced.
func (r *logReader) single() bool { return r.of.kind.plural == "pods" }

// sources are the containers to read: those of the pod, or of the first pods of
// a workload.
func (r *logReader) sources(ctx context.Context) ([]logSource, error) {
	pods := r.cluster.kube.CoreV1().Pods(r.of.namespace)
	if r.single() {
		pod, err := pods.Get(ctx, r.of.name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		return r.sourcesOf(pod), nil
	}
	selector, err := r.cluster.podSelector(ctx, r.of)
	if err != nil || selector == "" {
		return nil, err
	}
	list, err := pods.List(ctx, metav1.ListOptions{LabelSelector: selector, Limit: logMaxPods})
	if err != nil {
		return nil, err
	}
	var out []logSource
	for i := range list.Items {
		out = append(out, r.sourcesOf(&list.Items[i])...)
	}
	return out, nil
}

func (r *logReader) sourcesOf(pod *corev1.Pod) (out []logSource) {
	all := append(append([]corev1.Container{}, pod.Spec.InitContainers...), pod.Spec.Containers...)
	for _, c := range all {
		if r.options.Container != "" && c.Name != r.options.Container {
			continue
		}
		s := logSource{pod: pod.Name, container: c.Name}
		if status := statusOf(pod, c.Name); status != nil {
			s.restarts = status.RestartCount
		}
		switch {
		case !r.single():
			s.prefix = pod.Name + ":" + c.Name + " "
		case len(all) > 1 && r.options.Container == "":
			s.prefix = c.Name + " "
		}
		out = append(out, s)
	}
	return out
}

// follow reads one log, after a break from where it was, and says in the log
// what the break was.
func (r *logReader) follow(ctx context.Context, s logSource) {
	options := r.options
	options.Container, options.Timestamps = s.container, true
	said := ""
	for ctx.Err() == nil {
		body, err := r.cluster.kube.CoreV1().Pods(r.of.namespace).GetLogs(s.pod, &options).Stream(ctx)
		if err == nil {
			var n int
			n, err = r.copy(ctx, &s, body)
			body.Close()
			if n > 0 {
				said = ""
			}
		}
		if ctx.Err() != nil || err == nil && !options.Follow {
			return
		}
		text, over := r.fate(ctx, &s, err)
		if text != said && ctx.Err() == nil { // once, until lines come again
			r.to.add(divider(s.prefix + text))
			said = text
		}
		if over || !options.Follow {
			return
		}
		if !s.last.IsZero() {
			options.SinceTime, options.SinceSeconds, options.TailLines = &metav1.Time{Time: s.last}, nil, nil
		}
		select {
		case <-ctx.Done():
		case <-time.After(logRetry):
		}
	}
}

// fate says why a log ended, and whether there is no more to come.
func (r *logReader) fate(ctx context.Context, s *logSource, broken error) (text string, over bool) {
	pod, err := r.cluster.kube.CoreV1().Pods(r.of.namespace).Get(ctx, s.pod, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err): // of a StatefulSet, one of the same name will come
		return r.words.say("the pod is gone"), !r.single()
	case err != nil:
		return err.Error(), false
	}
	status := statusOf(pod, s.container)
	switch {
	case endedForGood(pod, s.container):
		return r.words.say("ended"), true
	case status != nil && (status.State.Terminated != nil || status.State.Waiting != nil && status.LastTerminationState.Terminated != nil):
		s.restarts = status.RestartCount + 1
		return r.words.say("ended, and will start again"), false
	case status != nil && status.RestartCount > s.restarts:
		s.restarts = status.RestartCount
		return r.words.say("restarted"), false
	case broken != nil:
		return broken.Error(), false
	}
	return r.words.say("reading again"), false
}

func statusOf(pod *corev1.Pod, container string) *corev1.ContainerStatus {
	for _, list := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range list {
			if list[i].Name == container {
				return &list[i]
			}
		}
	}
	return nil
}

// endedForGood says whether the container will write no more.
func endedForGood(pod *corev1.Pod, container string) bool {
	s := statusOf(pod, container)
	if s == nil || s.State.Terminated == nil {
		return false
	}
	if api.IsPodTerminal(pod) {
		return true
	}
	policy := pod.Spec.RestartPolicy
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		if c.Name == container && !api.IsSidecar(c) && policy == corev1.RestartPolicyAlways {
			policy = corev1.RestartPolicyOnFailure // once it is through, it is
		}
	}
	return policy == corev1.RestartPolicyNever || policy == corev1.RestartPolicyOnFailure && s.State.Terminated.ExitCode == 0
}

// copy adds lines in batches, so that a flood costs few wake-ups, and counts
// them. A log that ends is no error.
func (r *logReader) copy(ctx context.Context, s *logSource, from io.Reader) (n int, err error) {
	in := bufio.NewReaderSize(from, 64<<10)
	prefix := ""
	if s.prefix != "" {
		prefix = fmt.Sprintf("\x1b[%dm%s\x1b[0m", 31+hue(s.prefix)%6, s.prefix)
	}
	resume := *s
	var batch []string
	flushed := time.Now()
	for ctx.Err() == nil {
		line, err := in.ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			line = "" // half of one: it comes again
		}
		if stamp, text, fresh := s.take(strings.TrimRight(line, "\r\n"), &resume); fresh && line != "" {
			batch = append(batch, stamp+prefix+text)
		}
		if len(batch) > 0 && (err != nil || in.Buffered() == 0 || time.Since(flushed) > logBatchEach) {
			r.to.add(batch...)
			r.lag.note(s.pod+"/"+s.container, s.last, time.Now())
			n += len(batch)
			batch, flushed = nil, time.Now()
		}
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
	return n, ctx.Err()
}

// take notes a line's time. A line that was read before the break that resume
// is of is not fresh.
func (s *logSource) take(line string, resume *logSource) (stamp, text string, fresh bool) {
	stamp, text, _ = strings.Cut(line, " ")
	at, err := time.Parse(time.RFC3339Nano, stamp)
	if err != nil {
		return "", line, true
	}
	switch {
	case at.Before(resume.last):
		return "", "", false
	case at.Equal(resume.last) && resume.same > 0:
		resume.same--
		return "", "", false
	}
	if !at.Equal(s.last) {
		s.last, s.same = at, 0
	}
	s.same++
	return stamp + stampEnd, text, true
}

// hue gives a name always the same colour.
func hue(name string) int {
	h := 0
	for _, c := range name {
		h = (h*31 + int(c)) & 0xffff
	}
	return h
}

// lag tells how far what is read is behind what is written: the age of lines as
// they come. When none come any more, everything has been read. It is safe for
// concurrent use.
type lag struct {
	mu sync.Mutex // protects the field below
	of map[string]lateness
}

// lateness is one log's.
type lateness struct {
	age   time.Duration
	since time.Time // lines have been late since then; zero: they are not
	at    time.Time // when lines came last
}

const (
	lagShown = 2 * time.Second // what is less is not worth telling
	lagOver  = time.Second     // without lines for so long there is no backlog
)

func newLag() *lag { return &lag{of: map[string]lateness{}} }

func (l *lag) note(log string, written, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	late := l.of[log]
	late.age = now.Sub(written)
	switch {
	case late.age < lagShown || written.IsZero():
		late.since = time.Time{}
	case late.since.IsZero() || now.Sub(late.at) > lagOver:
		late.since = now
	}
	late.at = now
	l.of[log] = late
}

// behind is how late lines have come for a while; 0 is not at all.
func (l *lag) behind(now time.Time) (most time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, late := range l.of {
		if !late.since.IsZero() && now.Sub(late.at) <= lagOver && now.Sub(late.since) >= lagOver {
			most = max(most, late.age.Round(time.Second))
		}
	}
	return most
}
