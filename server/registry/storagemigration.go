package registry

import (
	migrationv1 "k8s.io/api/storagemigration/v1"

	"orrery.dev/api"
)

func storagemigrationKinds() []*Kind {
	type migration = migrationv1.StorageVersionMigration
	parts := halves[migration]{}
	return []*Kind{kind[migration, migrationv1.StorageVersionMigrationList]{
		Plural: "storageversionmigrations", Cluster: true, NeedsRevision: true,
		Columns: migrationColumns(), Row: migrationRow,
		Validate: api.ValidateStorageVersionMigration,
		Prepare:  parts.prepare,
		Sub:      Sub{"status": parts.pure(api.ValidateMigrationStatus)},
	}.erase(migrationv1.SchemeGroupVersion)}
}
