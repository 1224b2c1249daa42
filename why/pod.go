package why

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"orrery.dev/api"
)

// podChain walks a pod's own links, from the scheduler to its probes.
func (f *facts) podChain(pod *corev1.Pod, t target) chain {
	c := chain{}
	if pod.DeletionTimestamp != nil && !api.IsPodTerminal(pod) {
		c.add(startLink, f.terminating(pod))
		return c
	}
	if end := f.ended(pod, t); end != nil {
		c.add(startLink, *end)
		return c
	}
	if pod.Status.Phase == corev1.PodSucceeded {
		c.add(startLink, fine("succeeded", nil, phase(pod)))
		return c
	}
	f.walk(c, pod, t)
	return c
}

// walk asks link by link, up to the first that is not passed. Two are asked in
// any case: what is missing keeps a pod without a node from starting later on,
// and images may have been tried before the rest was there.
func (f *facts) walk(c chain, pod *corev1.Pod, t target) {
	placed := pod.Spec.NodeName != ""
	for _, step := range []struct {
		link   string
		look   func(*corev1.Pod, target) []api.Finding
		always bool
	}{
		{schedulingLink, f.scheduling, true},
		{volumesLink, f.inputs, true},
		{sandboxLink, f.sandbox, false},
		{imageLink, f.images, placed},
		{startLink, f.starts, false},
		{probesLink, f.probes, false},
	} {
		blocked := c.blocked()
		if blocked && !step.always {
			continue
		}
		findings := step.look(pod, t)
		if len(findings) == 0 && !blocked {
			findings = []api.Finding{fine("passed."+step.link, nil)}
		}
		c.add(step.link, findings...)
	}
	// Where a claim keeps the pod from a node, the claim is what is broken.
	for i := range c[schedulingLink] {
		if f := &c[schedulingLink][i]; (f.Code == "claimsUnbound" || f.Code == "claimProblem") && c.broken(volumesLink) {
			f.State = api.WhyWaiting
		}
	}
}

func phase(pod *corev1.Pod) api.Evidence {
	return evidence(podKind.ref(pod), "status.phase", strings.TrimSpace(string(pod.Status.Phase)+" "+pod.Status.Reason+" "+pod.Status.Message), time.Time{})
}

// begun reports whether all containers have started at least once, so that all
// that they need was there.
func begun(pod *corev1.Pod) bool {
	all := statuses(pod)
	return len(all) >= len(pod.Spec.Containers)+len(pod.Spec.InitContainers) && !slices.ContainsFunc(all, func(s corev1.ContainerStatus) bool {
		return s.State.Running == nil && s.State.Terminated == nil && s.LastTerminationState.Terminated == nil
	})
}

// statuses are those of all containers, init containers first.
func statuses(pod *corev1.Pod) []corev1.ContainerStatus {
	return slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses)
}

func (f *facts) terminating(pod *corev1.Pod) api.Finding {
	e := evidence(podKind.ref(pod), "metadata.deletionTimestamp", pod.DeletionTimestamp.UTC().Format(time.RFC3339), pod.DeletionTimestamp.Time)
	switch {
	case f.now.Sub(pod.DeletionTimestamp.Time) < time.Minute:
		return waiting("terminating", nil, e)
	case len(pod.Finalizers) > 0:
		return broken("finalizers", params("finalizers", strings.Join(pod.Finalizers, ", ")), e)
	}
	return mended(broken("stuckTerminating", params("node", pod.Spec.NodeName), e),
		mend("forceDelete", params("node", pod.Spec.NodeName), "kubectl delete pod "+pod.Name+" -n "+pod.Namespace+" --grace-period=0 --force"))
}

// ended is why a pod failed as a whole; nil: it did not.
func (f *facts) ended(pod *corev1.Pod, t target) *api.Finding {
	if pod.Status.Phase != corev1.PodFailed {
		return nil
	}
	finding := broken("podFailed", params("reason", pod.Status.Reason, "message", pod.Status.Message), phase(pod))
	switch pod.Status.Reason {
	case "Evicted":
		finding.Code = "evicted"
		finding.Params = params("node", pod.Spec.NodeName, "message", pod.Status.Message)
		finding = mended(finding, mend("evicted", params("field", t.field("containers[].resources.requests"))))
	case "DeadlineExceeded":
		finding.Code = "deadline"
		finding = mended(finding, mend("deadline", params("field", t.field("activeDeadlineSeconds"))))
	case "":
		for _, s := range statuses(pod) {
			if end := s.State.Terminated; end != nil && end.ExitCode != 0 {
				finding = f.exited(pod, s, end, t)
				break
			}
		}
	}
	return &finding
}

// sandbox is the step between the node and the containers: the kubelet has taken
// the pod, and the runtime has given it a network.
func (f *facts) sandbox(pod *corev1.Pod, _ target) []api.Finding {
	if begun(pod) {
		return nil
	}
	if c := api.PodCondition(pod, "PodReadyToStartContainers"); c != nil && c.Status == corev1.ConditionTrue {
		return nil
	}
	if finding := f.deadNode(pod.Spec.NodeName); finding != nil {
		return []api.Finding{*finding}
	}
	if e := f.event(podKind, pod, "FailedCreatePodSandBox", "NetworkNotReady"); e != nil {
		return []api.Finding{mended(broken("sandboxFailed", params("node", pod.Spec.NodeName, "message", e.Message), eventEvidence(e)),
			mend("sandbox", params("node", pod.Spec.NodeName), "kubectl describe node "+pod.Spec.NodeName))}
	}
	if len(pod.Status.ContainerStatuses) > 0 && api.PodCondition(pod, "PodReadyToStartContainers") == nil {
		return nil // its node does not tell
	}
	return []api.Finding{waiting("sandboxWaiting", params("node", pod.Spec.NodeName))}
}

// deadNode tells of a node that does not report; nil: it does, or may not be
// read.
func (f *facts) deadNode(name string) *api.Finding {
	node, err := get[*corev1.Node](f, nodeKind, "", name)
	if err != nil || node == nil {
		return nil
	}
	ready := api.NodeCondition(node, corev1.NodeReady)
	if ready == nil || ready.Status == corev1.ConditionTrue {
		return nil
	}
	finding := mended(broken("nodeDown", params("node", name, "message", ready.Message),
		evidence(nodeKind.ref(node), "condition Ready="+string(ready.Status), ready.Reason+": "+ready.Message, ready.LastTransitionTime.Time)),
		mend("nodeDown", params("node", name), "kubectl describe node "+name))
	return &finding
}

// imageTrouble sorts the runtimes' words for what went wrong with an image.
var imageTrouble = []struct {
	code  string
	words *regexp.Regexp
}{
	{"imageDenied", regexp.MustCompile(`(?i)unauthorized|authentication required|access denied|pull access denied|forbidden|no basic auth`)},
	{"imageUnreachable", regexp.MustCompile(`(?i)no such host|connection refused|i/o timeout|timed? ?out|network is unreachable|no route to host|x509|tls:|server gave HTTP response|deadline exceeded`)},
	{"imageNotFound", regexp.MustCompile(`(?i)not found|manifest unknown|name unknown|does not exist|no such image`)},
}

// images tells of images that could not be had.
func (f *facts) images(pod *corev1.Pod, t target) []api.Finding {
	var out []api.Finding
	for _, s := range statuses(pod) {
		w := s.State.Waiting
		if w == nil {
			continue
		}
		switch w.Reason {
		case "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError", "RegistryUnavailable", "SignatureValidationFailed":
			out = append(out, f.image(pod, s, w, t))
		}
	}
	if e := f.event(podKind, pod, "Pulling", "Pulled"); len(out) == 0 && !begun(pod) && e != nil && e.Reason == "Pulling" {
		out = append(out, waiting("pulling", nil, eventEvidence(e)))
	}
	return out
}

func (f *facts) image(pod *corev1.Pod, s corev1.ContainerStatus, w *corev1.ContainerStateWaiting, t target) api.Finding {
	name := imageOf(pod, s)
	facts := []api.Evidence{evidence(podKind.ref(pod), statusField(pod, s)+".state.waiting", w.Reason+": "+w.Message, time.Time{})}
	words := w.Message
	for _, e := range f.events(podKind, pod) {
		// While the kubelet backs off, only the event has the reason.
		if e.Reason == "Failed" && strings.Contains(e.Message, name) {
			words += " " + e.Message
			facts = append(facts, eventEvidence(e))
			break
		}
	}
	finding := broken("imageFailed", params("container", s.Name, "image", name, "message", w.Message), facts...)
	setImage := t.change("setImage", params("container", s.Name, "image", name, "field", t.field("containers["+s.Name+"].image")), "kubectl set image", s.Name+"=IMAGE")
	switch w.Reason {
	case "InvalidImageName":
		finding.Code = "imageInvalid"
		return mended(finding, setImage)
	case "ErrImageNeverPull":
		finding.Code = "imageNever"
		return mended(finding, mend("pullPolicy", params("field", t.field("containers["+s.Name+"].imagePullPolicy"))), setImage)
	}
	for _, trouble := range imageTrouble {
		if trouble.words.MatchString(words) {
			finding.Code = trouble.code
			break
		}
	}
	switch finding.Code {
	case "imageDenied":
		return mended(finding, mend("pullSecret", params("field", t.field("imagePullSecrets"), "image", name),
			"kubectl create secret docker-registry NAME -n "+pod.Namespace+" --docker-server=SERVER --docker-username=USER --docker-password=PASSWORD"), setImage)
	case "imageUnreachable":
		return mended(finding, mend("registry", params("node", pod.Spec.NodeName, "image", name)), setImage)
	}
	return mended(finding, setImage)
}

// imageOf is a container's image in the spec: its status has what the runtime
// made of it.
func imageOf(pod *corev1.Pod, s corev1.ContainerStatus) string {
	if c := containerOf(pod, s.Name); c != nil {
		return c.Image
	}
	return s.Image
}

func containerOf(pod *corev1.Pod, name string) *corev1.Container {
	for _, all := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range all {
			if all[i].Name == name {
				return &all[i]
			}
		}
	}
	return nil
}

// statusField is where a container's status is found.
func statusField(pod *corev1.Pod, s corev1.ContainerStatus) string {
	if api.ContainerStatus(pod.Status.InitContainerStatuses, s.Name) != nil {
		return fmt.Sprintf("status.initContainerStatuses[%s]", s.Name)
	}
	return fmt.Sprintf("status.containerStatuses[%s]", s.Name)
}

// starts tells of containers that do not start, or end when they should not.
func (f *facts) starts(pod *corev1.Pod, t target) []api.Finding {
	var out []api.Finding
	for _, s := range statuses(pod) {
		if finding := f.startOf(pod, s, t); finding != nil {
			out = append(out, *finding)
		}
	}
	if len(out) == 0 && len(pod.Status.ContainerStatuses) == 0 {
		out = append(out, waiting("starting", nil, phase(pod)))
	}
	return out
}

func (f *facts) startOf(pod *corev1.Pod, s corev1.ContainerStatus, t target) *api.Finding {
	main := containerOf(pod, s.Name)
	init := api.ContainerStatus(pod.Status.InitContainerStatuses, s.Name) != nil
	where := statusField(pod, s)
	switch {
	case s.State.Running != nil:
		if init && main != nil && !api.IsSidecar(main) {
			finding := waiting("initRunning", params("container", s.Name), evidence(podKind.ref(pod), where+".state.running", "", s.State.Running.StartedAt.Time))
			return &finding
		}
		// Up again for now: still telling, if it was only a moment ago.
		if end := s.LastTerminationState.Terminated; end != nil && !s.Ready && !init && !f.killedByProbe(pod) {
			finding := f.exited(pod, s, end, t)
			return &finding
		}
		return nil
	case s.State.Terminated != nil:
		end := s.State.Terminated
		if end.ExitCode == 0 && (init || pod.Spec.RestartPolicy != corev1.RestartPolicyAlways) {
			return nil
		}
		finding := f.exited(pod, s, end, t)
		return &finding
	}
	w := s.State.Waiting
	if w == nil || w.Reason == "" || w.Reason == "PodInitializing" {
		return nil // those before it have the word
	}
	e := evidence(podKind.ref(pod), where+".state.waiting", strings.TrimSuffix(w.Reason+": "+w.Message, ": "), time.Time{})
	switch w.Reason {
	case "ContainerCreating":
		finding := waiting("creating", params("container", s.Name), e)
		return &finding
	case "CrashLoopBackOff":
		if end := s.LastTerminationState.Terminated; end != nil {
			finding := f.exited(pod, s, end, t)
			finding.Evidence = append([]api.Evidence{e}, finding.Evidence...)
			return &finding
		}
	}
	finding := mended(broken("startFailed", params("container", s.Name, "reason", w.Reason, "message", w.Message), e),
		mend("startFailed", params("field", t.field("containers["+s.Name+"]")), "kubectl describe pod "+pod.Name+" -n "+pod.Namespace))
	return &finding
}

// exited tells of a container that ended, by how it ended.
func (f *facts) exited(pod *corev1.Pod, s corev1.ContainerStatus, end *corev1.ContainerStateTerminated, t target) api.Finding {
	words := fmt.Sprintf("%s, exit code %d", end.Reason, end.ExitCode)
	if end.Message != "" {
		words += ": " + strings.TrimSpace(end.Message)
	}
	e := evidence(podKind.ref(pod), statusField(pod, s)+".terminated", words, end.FinishedAt.Time)
	p := params("container", s.Name, "code", end.ExitCode, "restarts", s.RestartCount, "message", strings.TrimSpace(end.Message))
	logs := mend("logs", params("container", s.Name), fmt.Sprintf("kubectl logs %s -n %s -c %s%s", pod.Name, pod.Namespace, s.Name, previous(s)))
	c := containerOf(pod, s.Name)
	command := mend("command", params("field", t.field("containers["+s.Name+"].command"), "image", imageOf(pod, s)))
	switch {
	case end.Reason == "OOMKilled":
		p["limit"] = "-"
		if c != nil {
			if limit, ok := c.Resources.Limits[corev1.ResourceMemory]; ok {
				p["limit"] = limit.String()
			}
		}
		return mended(broken("oom", p, e), t.change("memoryLimit", params("limit", p["limit"], "field", t.field("containers["+s.Name+"].resources.limits.memory")),
			"kubectl set resources", "-c "+s.Name+" --limits=memory=MORE"))
	case end.ExitCode == 127 || strings.Contains(end.Message, "no such file or directory") || strings.Contains(end.Message, "executable file not found"):
		return mended(broken("noCommand", p, e), command, logs)
	case end.ExitCode == 126 || strings.Contains(end.Message, "permission denied"):
		return mended(broken("notExecutable", p, e), command, logs)
	case end.ExitCode == 0:
		return mended(broken("endsByItself", p, e), mend("keepRunning", params("container", s.Name)), logs)
	case end.Reason == "StartError" || end.Reason == "ContainerCannotRun":
		return mended(broken("startError", p, e), command, logs)
	}
	return mended(broken("exits", p, e), logs)
}

func previous(s corev1.ContainerStatus) string {
	if s.RestartCount > 0 {
		return " --previous"
	}
	return ""
}
