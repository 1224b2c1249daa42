// Package volume makes a pod's volumes appear as directories, one file per type
// of volume.
package volume
