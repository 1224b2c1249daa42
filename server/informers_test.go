package server

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"
)

// TestInformers follows changes with client-go's informers, typed and of
// metadata alone, as every controller does.
func TestInformers(t *testing.T) {
	clients(t, func(t *testing.T, c *cluster) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		maps := c.client.CoreV1().ConfigMaps("default")
		for i := range 20 {
			if _, err := maps.Create(ctx, configMap(fmt.Sprintf("early-%d", i)), metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		factory := informers.NewSharedInformerFactoryWithOptions(c.client, 0, informers.WithNamespace("default"))
		lister := factory.Core().V1().ConfigMaps().Lister()
		metadataClient, err := metadata.NewForConfig(c.config)
		if err != nil {
			t.Fatal(err)
		}
		partial := metadatainformer.NewFilteredSharedInformerFactory(metadataClient, 0, "default", nil)
		partialLister := partial.ForResource(corev1.SchemeGroupVersion.WithResource("configmaps")).Lister()
		factory.Start(ctx.Done())
		partial.Start(ctx.Done())
		defer func() { cancel(); factory.Shutdown(); partial.Shutdown() }()
		for kind, ok := range factory.WaitForCacheSync(ctx.Done()) {
			if !ok {
				t.Fatalf("%v did not sync", kind)
			}
		}
		cache.WaitForCacheSync(ctx.Done(), partial.ForResource(corev1.SchemeGroupVersion.WithResource("configmaps")).Informer().HasSynced)
		for i := range 20 {
			if _, err := maps.Create(ctx, configMap(fmt.Sprintf("late-%d", i), "x", "y"), metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			if err := maps.Delete(ctx, fmt.Sprintf("early-%d", i), metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		c.await("the informers", func() bool {
			typed, err := lister.ConfigMaps("default").List(labels.Everything())
			if err != nil {
				t.Fatal(err)
			}
			bare, err := partialLister.ByNamespace("default").List(labels.Everything())
			if err != nil {
				t.Fatal(err)
			}
			late, _ := lister.ConfigMaps("default").Get("late-19")
			return len(typed) == 20 && len(bare) == 20 && late != nil && late.Data["x"] == "y"
		})
	})
}
