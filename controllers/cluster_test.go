package controllers_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	migrationv1 "k8s.io/api/storagemigration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"orrery.dev/client"
	"orrery.dev/controllers"
	"orrery.dev/server"
	"orrery.dev/server/admission"
	"orrery.dev/server/auth"
	"orrery.dev/server/openapi"
	"orrery.dev/server/registry"
	"orrery.dev/server/storage"
)

const issuerURL = "https://kubernetes.default.svc"

// cluster is our API server over memory storage with all controllers against it,
// each with the rights of its own account,
// and a stand-in for scheduler and node agents that binds, runs and ends pods.
type cluster struct {
	t      *testing.T
	client kubernetes.Interface
	config *rest.Config
	board  *controllers.Board
	rootCA []byte
}

func startCluster(t *testing.T) *cluster {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	memory := storage.NewMemory()
	store := storage.New(memory, storage.Options{})
	kinds := registry.NewBuiltinTable()
	authz, err := auth.NewAuthorizer(auth.AuthorizerConfig{Source: server.AuthSource{Store: store}})
	check(t, err)
	addresses, err := admission.NewAddresses(store, server.NewOwnStore(store, kinds, server.NewFieldTypes(kinds)), []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12")}, admission.PortRange{First: 30000, Last: 32767})
	check(t, err)
	chain, err := admission.All(admission.Config{Reader: store, Writer: store, Addresses: addresses, Authorizer: authz, Kinds: kinds, CheckGrant: authz.CheckGrant})
	check(t, err)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(t, err)
	issuer, err := auth.NewIssuer(auth.IssuerConfig{URL: issuerURL, Key: key, Reader: store})
	check(t, err)
	s, err := server.New(server.Config{
		Store: store, Kinds: kinds, Admission: chain, Authorizer: authz, Rules: authz,
		Authenticator: authenticator.RequestFunc(func(r *http.Request) (*authenticator.Response, bool, error) {
			token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
			switch token {
			case "admin":
				return &authenticator.Response{User: &user.DefaultInfo{Name: "admin", Groups: []string{user.SystemPrivilegedGroup, user.AllAuthenticated}}}, true, nil
			case "manager":
				return &authenticator.Response{User: &user.DefaultInfo{Name: user.KubeControllerManager, Groups: []string{user.AllAuthenticated}}}, true, nil
			}
			known, ok, err := issuer.AuthenticateToken(authenticator.WithAudiences(r.Context(), []string{issuerURL}), token)
			if ok {
				u := known.User
				known.User = &user.DefaultInfo{Name: u.GetName(), UID: u.GetUID(), Extra: u.GetExtra(), Groups: append(u.GetGroups(), user.AllAuthenticated)}
			}
			return known, ok, err
		}),
		Tokens:    issuer,
		Documents: openapi.New(kinds, openapi.Options{Version: "v1.37.2"}),
		Version:   version.Info{Major: "1", Minor: "37", GitVersion: "v1.37.2"},
		Bootstrap: server.StepsOf(auth.BootstrapSteps(store)),
	})
	check(t, err)
	web := httptest.NewServer(s.Handler())
	for _, run := range []func(context.Context) error{authz.Run, addresses.Run} {
		all.Go(func() {
			if err := run(ctx); err != nil && !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
	}
	all.Go(func() { store.Run(ctx) })
	all.Go(func() { s.Run(ctx) })
	c := &cluster{t: t, config: client.ForComponent(&rest.Config{Host: web.URL, BearerToken: "admin"}, "test"), board: &controllers.Board{}, rootCA: authority(t)}
	c.client, err = kubernetes.NewForConfig(c.config)
	check(t, err)
	for range 3 {
		c.addNode()
	}
	manager := rest.CopyConfig(c.config)
	manager.BearerToken = "manager"
	managed, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() {
		done <- controllers.Run(managed, controllers.Config{REST: manager, RootCA: c.rootCA, AccountToken: issuer.LegacyToken, AllocateNodeCIDRs: true, ClusterCIDR: "10.244.0.0/16", LeaderElect: true, Board: c.board})
	}()
	all.Go(func() { c.play(ctx) })
	t.Cleanup(func() {
		if t.Failed() {
			for _, row := range c.board.Snapshot() {
				if row.LastError != "" {
					t.Logf("%s: %d failures, the last for %s: %s", row.Name, row.Failures, row.FailedKey, row.LastError)
				}
			}
		}
		stop()
		if err := <-done; err != nil {
			t.Errorf("controllers: %v", err)
		}
		s.Drain()
		web.CloseClientConnections()
		web.Close()
		cancel()
		all.Wait()
		memory.Close()
	})
	return c
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (c *cluster) addNode() {
	c.t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{GenerateName: "node-"}}
	node, err := c.client.CoreV1().Nodes().Create(context.Background(), node, metav1.CreateOptions{})
	check(c.t, err)
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.Now()}}
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("192.0.2.%d", 1+len(node.Name)%200)}}
	_, err = c.client.CoreV1().Nodes().UpdateStatus(context.Background(), node, metav1.UpdateOptions{})
	check(c.t, err)
}

// play does what scheduler and node agents do, roughly.
func (c *cluster) play(ctx context.Context) {
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	ip := 1
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		pods, err := c.client.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
		nodes, err2 := c.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil || err2 != nil {
			continue
		}
		c.beat(ctx, nodes.Items)
		for i := range pods.Items {
			pod := &pods.Items[i]
			api := c.client.CoreV1().Pods(pod.Namespace)
			switch {
			case pod.DeletionTimestamp != nil && len(pod.Finalizers) == 0:
				_ = api.Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
			case pod.DeletionTimestamp != nil:
			case pod.Spec.NodeName == "":
				c.claimNode(ctx, pod, nodes.Items[ip%len(nodes.Items)].Name)
				target := corev1.ObjectReference{Kind: "Node", Name: chosenNode(pod, nodes.Items[ip%len(nodes.Items)].Name)}
				_ = api.Bind(ctx, &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace}, Target: target}, metav1.CreateOptions{})
				ip++
			case pod.Status.Phase == corev1.PodPending:
				pod.Status.Phase = corev1.PodRunning
				if pod.Labels["runs"] == "once" {
					pod.Status.Phase = corev1.PodSucceeded
				}
				pod.Status.PodIP = fmt.Sprintf("10.244.%d.%d", ip/250, 1+ip%250)
				pod.Status.PodIPs = []corev1.PodIP{{IP: pod.Status.PodIP}}
				pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()})
				_, _ = api.UpdateStatus(ctx, pod, metav1.UpdateOptions{})
				ip++
			}
		}
	}
}

// beat renews the nodes' signs of life when they are some seconds old.
func (c *cluster) beat(ctx context.Context, nodes []corev1.Node) {
	for i := range nodes {
		ready := &nodes[i].Status.Conditions[0]
		if time.Since(ready.LastHeartbeatTime.Time) > 5*time.Second {
			ready.LastHeartbeatTime = metav1.Now()
			_, _ = c.client.CoreV1().Nodes().UpdateStatus(ctx, &nodes[i], metav1.UpdateOptions{})
		}
	}
}

// chosenNode honours the pin of a daemon pod.
func chosenNode(pod *corev1.Pod, otherwise string) string {
	if a := pod.Spec.Affinity; a != nil && a.NodeAffinity != nil && a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		return a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchFields[0].Values[0]
	}
	return otherwise
}

// claimNode tells provisioners where a pod's volumes are to be.
func (c *cluster) claimNode(ctx context.Context, pod *corev1.Pod, node string) {
	for _, v := range pod.Spec.Volumes {
		if v.PersistentVolumeClaim == nil {
			continue
		}
		claim, err := c.client.CoreV1().PersistentVolumeClaims(pod.Namespace).Get(ctx, v.PersistentVolumeClaim.ClaimName, metav1.GetOptions{})
		if err != nil || claim.Annotations["volume.kubernetes.io/selected-node"] != "" {
			continue
		}
		metav1.SetMetaDataAnnotation(&claim.ObjectMeta, "volume.kubernetes.io/selected-node", node)
		_, _ = c.client.CoreV1().PersistentVolumeClaims(pod.Namespace).Update(ctx, claim, metav1.UpdateOptions{})
	}
}

// namespace makes a namespace for one story.
func (c *cluster) namespace(t *testing.T) string {
	t.Helper()
	ns, err := c.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "story-"}}, metav1.CreateOptions{})
	check(t, err)
	eventually(t, func() error {
		_, err := c.client.CoreV1().ServiceAccounts(ns.Name).Get(t.Context(), "default", metav1.GetOptions{})
		return err
	})
	return ns.Name
}

func (c *cluster) pods(t *testing.T, namespace string) []corev1.Pod {
	t.Helper()
	pods, err := c.client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
	check(t, err)
	return pods.Items
}

func eventually(t *testing.T, holds func() error) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := holds()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		<-ticker.C
	}
}

func template(labels map[string]string, image string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: image}}}}
}

func ptr[T any](v T) *T { return &v }

func aDeployment(name string, replicas int32) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.DeploymentSpec{
		Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template(labels, "image:1"),
	}}
}

// TestStories runs the controllers against our own API server.
func TestStories(t *testing.T) {
	c := startCluster(t)
	for _, story := range []struct {
		name string
		tell func(*testing.T, *cluster)
	}{
		{"deployment", deploymentStory}, {"deletion", deletionStory}, {"namespace", namespaceStory}, {"job", jobStory},
		{"sets", setsStory}, {"volume", volumeStory}, {"limits", limitsStory}, {"nodes", nodesStory}, {"token", tokenStory},
		{"attributes class", attributesClassStory}, {"service range", serviceRangeStory}, {"trust bundle", trustBundleStory}, {"device", deviceStory},
		{"migration", migrationStory}, {"migrated definition", migratedDefinitionStory},
		{"policy", policyStory},
	} {
		t.Run(story.name, func(t *testing.T) { story.tell(t, c) })
	}
}

func deploymentStory(t *testing.T, c *cluster) {
	ns := c.namespace(t)
	apps := c.client.AppsV1()
	_, err := apps.Deployments(ns).Create(t.Context(), aDeployment("web", 3), metav1.CreateOptions{})
	check(t, err)
	_, err = c.client.CoreV1().Services(ns).Create(t.Context(), &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.ServiceSpec{
		Selector: map[string]string{"app": "web"}, Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(8080)}}, Type: corev1.ServiceTypeLoadBalancer,
	}}, metav1.CreateOptions{})
	check(t, err)
	rolledOut := func(revision, image string) func() error {
		return func() error {
			d, err := apps.Deployments(ns).Get(t.Context(), "web", metav1.GetOptions{})
			if err != nil || d.Annotations["deployment.kubernetes.io/revision"] != revision || d.Status.AvailableReplicas != 3 || d.Status.UpdatedReplicas != 3 || d.Status.Replicas != 3 {
				return fmt.Errorf("%v: revision %s, %+v", err, d.Annotations["deployment.kubernetes.io/revision"], d.Status)
			}
			slices, _ := c.client.DiscoveryV1().EndpointSlices(ns).List(t.Context(), metav1.ListOptions{})
			if len(slices.Items) != 1 || len(slices.Items[0].Endpoints) != 3 {
				return fmt.Errorf("slices %+v", slices.Items)
			}
			ep, err := c.client.CoreV1().Endpoints(ns).Get(t.Context(), "web", metav1.GetOptions{})
			if err != nil || len(ep.Subsets) != 1 || len(ep.Subsets[0].Addresses) != 3 || ep.Subsets[0].Ports[0].Port != 8080 {
				return fmt.Errorf("%v: endpoints %+v", err, ep)
			}
			for _, pod := range c.pods(t, ns) {
				if pod.Spec.Containers[0].Image != image {
					return fmt.Errorf("pod %s runs %s", pod.Name, pod.Spec.Containers[0].Image)
				}
			}
			return nil
		}
	}
	eventually(t, rolledOut("1", "image:1"))
	d, err := apps.Deployments(ns).Get(t.Context(), "web", metav1.GetOptions{})
	check(t, err)
	d.Spec.Template.Spec.Containers[0].Image = "image:2"
	_, err = apps.Deployments(ns).Update(t.Context(), d, metav1.UpdateOptions{})
	check(t, err)
	eventually(t, rolledOut("2", "image:2"))
	eventually(t, func() error {
		svc, err := c.client.CoreV1().Services(ns).Get(t.Context(), "web", metav1.GetOptions{})
		if err != nil || len(svc.Status.LoadBalancer.Ingress) == 0 {
			return fmt.Errorf("%v: no address for the load balancer", err)
		}
		return nil
	})
}

func deletionStory(t *testing.T, c *cluster) {
	ns := c.namespace(t)
	apps := c.client.AppsV1()
	counts := func() (sets, pods int) {
		rs, err := apps.ReplicaSets(ns).List(t.Context(), metav1.ListOptions{})
		check(t, err)
		return len(rs.Items), len(c.pods(t, ns))
	}
	for _, way := range []struct {
		policy     metav1.DeletionPropagation
		sets, pods int
	}{{metav1.DeletePropagationBackground, 0, 0}, {metav1.DeletePropagationForeground, 0, 0}, {metav1.DeletePropagationOrphan, 1, 2}} {
		_, err := apps.Deployments(ns).Create(t.Context(), aDeployment("web", 2), metav1.CreateOptions{})
		check(t, err)
		eventually(t, func() error {
			if sets, pods := counts(); sets != 1 || pods != 2 {
				return fmt.Errorf("%d sets, %d pods", sets, pods)
			}
			return nil
		})
		check(t, apps.Deployments(ns).Delete(t.Context(), "web", metav1.DeleteOptions{PropagationPolicy: &way.policy}))
		eventually(t, func() error {
			_, err := apps.Deployments(ns).Get(t.Context(), "web", metav1.GetOptions{})
			if sets, pods := counts(); sets != way.sets || pods != way.pods || !apierrors.IsNotFound(err) {
				return fmt.Errorf("%s: %d sets, %d pods, deployment: %v", way.policy, sets, pods, err)
			}
			return nil
		})
	}
	sets, err := apps.ReplicaSets(ns).List(t.Context(), metav1.ListOptions{})
	check(t, err)
	if owners := sets.Items[0].OwnerReferences; len(owners) != 0 {
		t.Errorf("the orphan has owners %v", owners)
	}
}

func namespaceStory(t *testing.T, c *cluster) {
	ns := c.namespace(t)
	_, err := c.client.AppsV1().Deployments(ns).Create(t.Context(), aDeployment("web", 2), metav1.CreateOptions{})
	check(t, err)
	eventually(t, func() error {
		m, err := c.client.CoreV1().ConfigMaps(ns).Get(t.Context(), "kube-root-ca.crt", metav1.GetOptions{})
		if err != nil || m.Data["ca.crt"] != string(c.rootCA) || len(c.pods(t, ns)) != 2 {
			return fmt.Errorf("%v: %v, %d pods", err, m.Data, len(c.pods(t, ns)))
		}
		return nil
	})
	check(t, c.client.CoreV1().Namespaces().Delete(t.Context(), ns, metav1.DeleteOptions{}))
	eventually(t, func() error {
		got, err := c.client.CoreV1().Namespaces().Get(t.Context(), ns, metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("%v: %+v", err, got.Status)
		}
		return nil
	})
}

func jobStory(t *testing.T, c *cluster) {
	ns := c.namespace(t)
	mode := batchv1.IndexedCompletion
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "sum"}, Spec: batchv1.JobSpec{
		Completions: ptr(int32(3)), Parallelism: ptr(int32(2)), CompletionMode: &mode, TTLSecondsAfterFinished: ptr(int32(3600)), Template: template(map[string]string{"runs": "once"}, "image:1"),
	}}
	job.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
	_, err := c.client.BatchV1().Jobs(ns).Create(t.Context(), job, metav1.CreateOptions{})
	check(t, err)
	eventually(t, func() error {
		job, err := c.client.BatchV1().Jobs(ns).Get(t.Context(), "sum", metav1.GetOptions{})
		if err != nil || job.Status.Succeeded != 3 || job.Status.CompletionTime == nil || job.Status.CompletedIndexes != "0-2" {
			return fmt.Errorf("%v: %+v", err, job.Status)
		}
		return nil
	})
	check(t, c.client.BatchV1().Jobs(ns).Delete(t.Context(), "sum", metav1.DeleteOptions{PropagationPolicy: ptr(metav1.DeletePropagationBackground)}))
	eventually(t, func() error {
		if n := len(c.pods(t, ns)); n > 0 {
			return fmt.Errorf("%d pods left", n)
		}
		return nil
	})
}

func setsStory(t *testing.T, c *cluster) {
	ns := c.namespace(t)
	labels := map[string]string{"app": "d"}
	_, err := c.client.AppsV1().DaemonSets(ns).Create(t.Context(), &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "d"}, Spec: appsv1.DaemonSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template(labels, "image:1"),
	}}, metav1.CreateOptions{})
	check(t, err)
	labels = map[string]string{"app": "s"}
	_, err = c.client.AppsV1().StatefulSets(ns).Create(t.Context(), &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Spec: appsv1.StatefulSetSpec{
		Replicas: ptr(int32(2)), ServiceName: "s", Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template(labels, "image:1"),
	}}, metav1.CreateOptions{})
	check(t, err)
	eventually(t, func() error {
		d, err := c.client.AppsV1().DaemonSets(ns).Get(t.Context(), "d", metav1.GetOptions{})
		check(t, err)
		s, err := c.client.AppsV1().StatefulSets(ns).Get(t.Context(), "s", metav1.GetOptions{})
		check(t, err)
		if d.Status.NumberAvailable != 3 || d.Status.DesiredNumberScheduled != 3 || d.Status.UpdatedNumberScheduled != 3 || s.Status.AvailableReplicas != 2 || s.Status.CurrentRevision == "" {
			return fmt.Errorf("daemon set %+v, stateful set %+v", d.Status, s.Status)
		}
		return nil
	})
}

func volumeStory(t *testing.T, c *cluster) {
	ns := c.namespace(t)
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data"}, Spec: corev1.PersistentVolumeClaimSpec{
		StorageClassName: ptr("local-path"), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
	}}
	_, err := c.client.StorageV1().StorageClasses().Create(t.Context(), &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: "local-path"}, Provisioner: "orrery.dev/local-path", VolumeBindingMode: ptr(storagev1.VolumeBindingWaitForFirstConsumer),
	}, metav1.CreateOptions{})
	check(t, err)
	_, err = c.client.CoreV1().PersistentVolumeClaims(ns).Create(t.Context(), claim, metav1.CreateOptions{})
	check(t, err)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "user"}, Spec: template(nil, "image:1").Spec}
	pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
	_, err = c.client.CoreV1().Pods(ns).Create(t.Context(), pod, metav1.CreateOptions{})
	check(t, err)
	volume := ""
	eventually(t, func() error {
		claim, err := c.client.CoreV1().PersistentVolumeClaims(ns).Get(t.Context(), "data", metav1.GetOptions{})
		if err != nil || claim.Status.Phase != corev1.ClaimBound || len(claim.Finalizers) == 0 {
			return fmt.Errorf("%v: %+v", err, claim)
		}
		volume = claim.Spec.VolumeName
		return nil
	})
	check(t, c.client.CoreV1().PersistentVolumeClaims(ns).Delete(t.Context(), "data", metav1.DeleteOptions{}))
	if _, err := c.client.CoreV1().PersistentVolumeClaims(ns).Get(t.Context(), "data", metav1.GetOptions{}); err != nil {
		t.Errorf("the claim is in use, and yet: %v", err)
	}
	check(t, c.client.CoreV1().Pods(ns).Delete(t.Context(), "user", metav1.DeleteOptions{}))
	eventually(t, func() error {
		v, err := c.client.CoreV1().PersistentVolumes().Get(t.Context(), volume, metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("%v: volume %+v", err, v.Status)
		}
		return nil
	})
}

func limitsStory(t *testing.T, c *cluster) {
	ns := c.namespace(t)
	_, err := c.client.CoreV1().ResourceQuotas(ns).Create(t.Context(), &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "q"}, Spec: corev1.ResourceQuotaSpec{
		Hard: corev1.ResourceList{"pods": resource.MustParse("5"), "configmaps": resource.MustParse("5"), "count/deployments.apps": resource.MustParse("2")},
	}}, metav1.CreateOptions{})
	check(t, err)
	eventually(t, func() error {
		q, err := c.client.CoreV1().ResourceQuotas(ns).Get(t.Context(), "q", metav1.GetOptions{})
		if err != nil || len(q.Status.Hard) != 3 {
			return fmt.Errorf("%v: %+v", err, q.Status)
		}
		return nil
	})
	_, err = c.client.AppsV1().Deployments(ns).Create(t.Context(), aDeployment("web", 3), metav1.CreateOptions{})
	check(t, err)
	_, err = c.client.PolicyV1().PodDisruptionBudgets(ns).Create(t.Context(), &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "b"}, Spec: policyv1.PodDisruptionBudgetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, MaxUnavailable: ptr(intstr.FromInt32(1)),
	}}, metav1.CreateOptions{})
	check(t, err)
	eventually(t, func() error {
		q, err := c.client.CoreV1().ResourceQuotas(ns).Get(t.Context(), "q", metav1.GetOptions{})
		check(t, err)
		b, err := c.client.PolicyV1().PodDisruptionBudgets(ns).Get(t.Context(), "b", metav1.GetOptions{})
		check(t, err)
		pods, maps, deployments := q.Status.Used["pods"], q.Status.Used["configmaps"], q.Status.Used["count/deployments.apps"]
		if pods.Value() != 3 || maps.Value() != 1 || deployments.Value() != 1 || b.Status.DisruptionsAllowed != 1 || b.Status.ExpectedPods != 3 {
			return fmt.Errorf("quota %v, budget %+v", q.Status.Used, b.Status)
		}
		return nil
	})
}

func nodesStory(t *testing.T, c *cluster) {
	eventually(t, func() error {
		nodes, err := c.client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
		check(t, err)
		ranges := map[string]bool{}
		for _, node := range nodes.Items {
			ranges[node.Spec.PodCIDR] = true
			if node.Annotations[corev1.ObjectTTLAnnotationKey] != "0" {
				return fmt.Errorf("node %s has annotations %v", node.Name, node.Annotations)
			}
			for _, taint := range node.Spec.Taints {
				if taint.Key == corev1.TaintNodeNotReady {
					return fmt.Errorf("ready node %s has taint %v", node.Name, taint)
				}
			}
		}
		if len(ranges) != 3 || !ranges["10.244.0.0/24"] {
			return fmt.Errorf("ranges %v", ranges)
		}
		role, err := c.client.RbacV1().ClusterRoles().Get(t.Context(), "edit", metav1.GetOptions{})
		if err != nil || len(role.Rules) == 0 {
			return fmt.Errorf("%v: cluster role edit has %d rules", err, len(role.Rules))
		}
		return nil
	})
}

// A Secret of an account gets a token that lets its holder in, goes with the
// account, and with it the account's mention of it.
func tokenStory(t *testing.T, c *cluster) {
	ns := c.namespace(t)
	accounts, secrets := c.client.CoreV1().ServiceAccounts(ns), c.client.CoreV1().Secrets(ns)
	_, err := accounts.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot"}, Secrets: []corev1.ObjectReference{{Name: "first"}}}, metav1.CreateOptions{})
	check(t, err)
	filled := func(name string) *corev1.Secret {
		_, err := secrets.Create(t.Context(), &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{corev1.ServiceAccountNameKey: "robot"}}, Type: corev1.SecretTypeServiceAccountToken,
			Data: map[string][]byte{"more": []byte("of mine")},
		}, metav1.CreateOptions{})
		check(t, err)
		var secret *corev1.Secret
		eventually(t, func() error {
			secret, err = secrets.Get(t.Context(), name, metav1.GetOptions{})
			if err != nil || !bytes.Equal(secret.Data["ca.crt"], c.rootCA) || string(secret.Data["namespace"]) != ns || len(secret.Data["token"]) == 0 || secret.Annotations[corev1.ServiceAccountUIDKey] == "" || string(secret.Data["more"]) != "of mine" {
				return fmt.Errorf("%v: secret %+v", err, secret)
			}
			return nil
		})
		return secret
	}
	holder := rest.CopyConfig(c.config)
	holder.BearerToken = string(filled("first").Data["token"])
	client, err := kubernetes.NewForConfig(holder)
	check(t, err)
	who, err := client.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil || who.Status.UserInfo.Username != "system:serviceaccount:"+ns+":robot" {
		t.Errorf("the token's holder is %v, %v", who, err)
	}
	check(t, secrets.Delete(t.Context(), "first", metav1.DeleteOptions{}))
	eventually(t, func() error {
		account, err := accounts.Get(t.Context(), "robot", metav1.GetOptions{})
		if err != nil || len(account.Secrets) > 0 {
			return fmt.Errorf("%v: account still names %v", err, account.Secrets)
		}
		return nil
	})
	filled("second")
	check(t, accounts.Delete(t.Context(), "robot", metav1.DeleteOptions{}))
	eventually(t, func() error {
		if _, err := secrets.Get(t.Context(), "second", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("the secret outlives its account: %v", err)
		}
		return nil
	})
}

func migrationStory(t *testing.T, c *cluster) {
	ns := c.namespace(t)
	made, err := c.client.CoreV1().ConfigMaps(ns).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "c"}}, metav1.CreateOptions{})
	check(t, err)
	migrations := c.client.StoragemigrationV1().StorageVersionMigrations()
	for name, resource := range map[string]string{"maps": "configmaps", "maps-again": "configmaps", "nodes": "nodes"} {
		_, err = migrations.Create(t.Context(), &migrationv1.StorageVersionMigration{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: migrationv1.StorageVersionMigrationSpec{Resource: metav1.GroupResource{Resource: resource}},
		}, metav1.CreateOptions{})
		check(t, err)
	}
	eventually(t, func() error {
		all, err := migrations.List(t.Context(), metav1.ListOptions{})
		check(t, err)
		for _, m := range all.Items {
			if !meta.IsStatusConditionTrue(m.Status.Conditions, string(migrationv1.MigrationSucceeded)) || !meta.IsStatusConditionFalse(m.Status.Conditions, string(migrationv1.MigrationRunning)) || m.Status.ResourceVersion == "" {
				return fmt.Errorf("%s: %+v", m.Name, m.Status)
			}
		}
		return nil
	})
	after, err := c.client.CoreV1().ConfigMaps(ns).Get(t.Context(), "c", metav1.GetOptions{})
	check(t, err)
	if after.ResourceVersion != made.ResourceVersion {
		t.Errorf("an object that was stored as it should be has been written: %+v", after)
	}
}

// migratedDefinitionStory turns the storage version of a custom resource over.
func migratedDefinitionStory(t *testing.T, c *cluster) {
	const path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	version := func(name string, storage bool) string {
		return fmt.Sprintf(`{"name":%q,"served":true,"storage":%v,"schema":{"openAPIV3Schema":{"type":"object"}}}`, name, storage)
	}
	definition := `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"toys.example.org"},"spec":{"group":"example.org","scope":"Cluster",
		"names":{"plural":"toys","kind":"Toy"},"versions":[` + version("v1", true) + "," + version("v2", false) + "]}}"
	raw := c.client.AppsV1().RESTClient()
	check(t, raw.Post().AbsPath(path).SetHeader("Content-Type", "application/json").Body([]byte(definition)).Do(t.Context()).Error())
	eventually(t, func() error {
		return raw.Post().AbsPath("/apis/example.org/v1/toys").SetHeader("Content-Type", "application/json").
			Body([]byte(`{"apiVersion":"example.org/v1","kind":"Toy","metadata":{"name":"ball"}}`)).Do(t.Context()).Error()
	})
	turn := `{"spec":{"versions":[` + version("v1", false) + "," + version("v2", true) + "]}}"
	check(t, raw.Patch(types.MergePatchType).AbsPath(path, "toys.example.org").Body([]byte(turn)).Do(t.Context()).Error())
	_, err := c.client.StoragemigrationV1().StorageVersionMigrations().Create(t.Context(), &migrationv1.StorageVersionMigration{
		ObjectMeta: metav1.ObjectMeta{Name: "toys"}, Spec: migrationv1.StorageVersionMigrationSpec{Resource: metav1.GroupResource{Group: "example.org", Resource: "toys"}},
	}, metav1.CreateOptions{})
	check(t, err)
	eventually(t, func() error {
		text, err := raw.Get().AbsPath(path, "toys.example.org").SetHeader("Accept", "application/json").DoRaw(t.Context())
		if err != nil || !strings.Contains(string(text), `"storedVersions":["v2"]`) || !strings.Contains(string(text), "MigrationSucceeded") || !strings.Contains(string(text), "Established") {
			return fmt.Errorf("%v: %s", err, text)
		}
		return nil
	})
}

// policyStory has a policy with an expression that is wrong for Deployments, and
// one that is right.
func policyStory(t *testing.T, c *cluster) {
	policies := c.client.AdmissionregistrationV1().ValidatingAdmissionPolicies()
	for name, expression := range map[string]string{"right": "object.spec.replicas > 1", "wrong": "object.spec.replicas > '1'", "variable": "variables.n > '1'"} {
		_, err := policies.Create(t.Context(), &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
				Operations: []admissionv1.OperationType{"CREATE"}, Rule: admissionv1.Rule{APIGroups: []string{"apps"}, APIVersions: []string{"v1"}, Resources: []string{"deployments"}},
			}}}},
			Variables:   []admissionv1.Variable{{Name: "n", Expression: "object.spec.replicas"}},
			Validations: []admissionv1.Validation{{Expression: expression}},
		}}, metav1.CreateOptions{})
		check(t, err)
	}
	eventually(t, func() error {
		for name, want := range map[string]int{"right": 0, "wrong": 1, "variable": 1} {
			p, err := policies.Get(t.Context(), name, metav1.GetOptions{})
			check(t, err)
			if p.Status.ObservedGeneration != 1 || p.Status.TypeChecking == nil || len(p.Status.TypeChecking.ExpressionWarnings) != want {
				return fmt.Errorf("%s: %+v", name, p.Status)
			}
			for _, w := range p.Status.TypeChecking.ExpressionWarnings {
				if w.FieldRef != "spec.validations[0].expression" || !strings.Contains(w.Warning, "apps/v1, Kind=Deployment: ") || !strings.Contains(w.Warning, "found no matching overload for '_>_' applied to '(int, string)'") {
					return fmt.Errorf("%s: %+v", name, w)
				}
			}
		}
		return nil
	})
}
