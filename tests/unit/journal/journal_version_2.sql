-- A journal as version 2 wrote it (migrator 0.1.0), on SQLite: .dump of its file.
BEGIN TRANSACTION;
CREATE TABLE migrator_claim (
	table_number INTEGER NOT NULL, 
	digest BLOB NOT NULL, 
	owner TEXT NOT NULL, 
	PRIMARY KEY (table_number, digest)
)
 WITHOUT ROWID

;
INSERT INTO "migrator_claim" VALUES(1,X'30313233343536373839616263646566','order:[1]');
CREATE TABLE migrator_claimed_table (
	number INTEGER NOT NULL, 
	table_id VARCHAR(255) NOT NULL, 
	PRIMARY KEY (number), 
	UNIQUE (table_id)
);
INSERT INTO "migrator_claimed_table" VALUES(1,'table-1');
CREATE TABLE migrator_confirmed_phase (
	instance VARCHAR(32) NOT NULL, 
	pattern VARCHAR(255) NOT NULL, 
	job VARCHAR(64) NOT NULL, 
	version INTEGER NOT NULL, 
	PRIMARY KEY (instance, pattern)
);
CREATE TABLE migrator_contest (
	digest BLOB NOT NULL, 
	root BLOB NOT NULL, 
	item_key TEXT NOT NULL, 
	entity VARCHAR(255) NOT NULL, 
	source_key TEXT NOT NULL, 
	PRIMARY KEY (digest, root)
);
CREATE TABLE migrator_fast_path (
	table_id VARCHAR(255) NOT NULL, 
	closed INTEGER NOT NULL, 
	PRIMARY KEY (table_id)
);
CREATE TABLE migrator_finding (
	id INTEGER NOT NULL, 
	run_id INTEGER NOT NULL, 
	digest BLOB NOT NULL, 
	kind VARCHAR(16) NOT NULL, 
	entity VARCHAR(255) NOT NULL, 
	reason TEXT NOT NULL, 
	source_key TEXT NOT NULL, 
	item_key TEXT NOT NULL, 
	attribute TEXT NOT NULL, 
	item_type TEXT, 
	owner TEXT, 
	PRIMARY KEY (id), 
	CONSTRAINT migrator_finding_once UNIQUE (run_id, digest)
);
INSERT INTO "migrator_finding" VALUES(1,1,X'431092223429819F1F1D8C89E673B448','refused','order','no text fits','[7]','','','Order','');
CREATE TABLE migrator_identity (
	number INTEGER NOT NULL, 
	id VARCHAR(32) NOT NULL, 
	PRIMARY KEY (number)
);
INSERT INTO "migrator_identity" VALUES(1,'4435f5ec96ee9614eb10c4be38011d8f');
CREATE TABLE migrator_instance (
	id VARCHAR(32) NOT NULL, 
	job VARCHAR(64) NOT NULL, 
	service VARCHAR(255) NOT NULL, 
	host VARCHAR(255) NOT NULL, 
	pid BIGINT NOT NULL, 
	version VARCHAR(255) NOT NULL, 
	migrator VARCHAR(64) NOT NULL, 
	role VARCHAR(16) NOT NULL, 
	mode VARCHAR(16) NOT NULL, 
	revision VARCHAR(64) NOT NULL, 
	installation VARCHAR(64) NOT NULL, 
	since DOUBLE NOT NULL, 
	alive_at DOUBLE NOT NULL, 
	PRIMARY KEY (id)
);
CREATE TABLE migrator_instance_process (
	id VARCHAR(32) NOT NULL, 
	job VARCHAR(64) NOT NULL, 
	sees VARCHAR(255) NOT NULL, 
	born VARCHAR(64) NOT NULL, 
	PRIMARY KEY (id)
);
CREATE TABLE migrator_job_name (
	job VARCHAR(64) NOT NULL, 
	kind VARCHAR(16) NOT NULL, 
	number INTEGER NOT NULL, 
	name TEXT NOT NULL, 
	PRIMARY KEY (job, kind, number)
);
CREATE TABLE migrator_known_revision (
	job VARCHAR(64) NOT NULL, 
	digest VARCHAR(64) NOT NULL, 
	PRIMARY KEY (job, digest)
);
CREATE TABLE migrator_lease (
	job VARCHAR(64) NOT NULL, 
	holder TEXT NOT NULL, 
	since VARCHAR(40) NOT NULL, 
	expires_at DOUBLE NOT NULL, 
	PRIMARY KEY (job)
);
CREATE TABLE migrator_meta (
	version INTEGER NOT NULL, 
	PRIMARY KEY (version)
);
INSERT INTO "migrator_meta" VALUES(2);
CREATE TABLE migrator_move (
	job VARCHAR(64) NOT NULL, 
	pattern VARCHAR(255) NOT NULL, 
	version INTEGER NOT NULL, 
	at DOUBLE NOT NULL, 
	who VARCHAR(255) NOT NULL, 
	"before" VARCHAR(32) NOT NULL, 
	"after" VARCHAR(32) NOT NULL, 
	reason TEXT NOT NULL, 
	evidence TEXT NOT NULL, 
	override INTEGER NOT NULL, 
	revision VARCHAR(64) NOT NULL, 
	PRIMARY KEY (job, pattern, version)
);
CREATE TABLE migrator_open_finding (
	job VARCHAR(64) NOT NULL, 
	digest BLOB NOT NULL, 
	table_id VARCHAR(255) NOT NULL, 
	root BLOB NOT NULL, 
	ticket BIGINT NOT NULL, 
	kind VARCHAR(16) NOT NULL, 
	entity VARCHAR(255) NOT NULL, 
	reason TEXT NOT NULL, 
	source_key TEXT NOT NULL, 
	item_key TEXT NOT NULL, 
	attribute TEXT NOT NULL, 
	item_type TEXT NOT NULL, 
	owner TEXT NOT NULL, 
	PRIMARY KEY (job, digest)
);
CREATE TABLE migrator_page (
	run_id INTEGER NOT NULL, 
	entity VARCHAR(255) NOT NULL, 
	number INTEGER NOT NULL, 
	after_key TEXT, 
	upto_key TEXT, 
	done_at VARCHAR(40), 
	rows BIGINT NOT NULL, 
	items BIGINT NOT NULL, 
	refused BIGINT NOT NULL, 
	expired BIGINT NOT NULL, 
	bytes BIGINT NOT NULL, 
	write_units DOUBLE NOT NULL, 
	different BIGINT NOT NULL, 
	PRIMARY KEY (run_id, entity, number)
);
INSERT INTO "migrator_page" VALUES(1,'order',1,NULL,'[100]','2026-11-22 18:56:06+00:00',100,200,1,0,5000,200.0,0);
INSERT INTO "migrator_page" VALUES(1,'order',2,'[100]',NULL,NULL,0,0,0,0,0,0.0,0);
CREATE TABLE migrator_phase (
	job VARCHAR(64) NOT NULL, 
	pattern VARCHAR(255) NOT NULL, 
	phase VARCHAR(16) NOT NULL, 
	percent INTEGER NOT NULL, 
	version INTEGER NOT NULL, 
	since DOUBLE NOT NULL, 
	PRIMARY KEY (job, pattern)
);
CREATE TABLE migrator_plan (
	run_id INTEGER NOT NULL, 
	entity VARCHAR(255) NOT NULL, 
	PRIMARY KEY (run_id, entity)
);
INSERT INTO "migrator_plan" VALUES(1,'order');
CREATE TABLE migrator_reached_ticket (
	table_id VARCHAR(255) NOT NULL, 
	ticket BIGINT NOT NULL, 
	PRIMARY KEY (table_id)
);
CREATE TABLE migrator_remembered_key (
	root BLOB NOT NULL, 
	digest BLOB NOT NULL, 
	item_key TEXT NOT NULL, 
	PRIMARY KEY (root, digest)
);
CREATE TABLE migrator_remembered_root (
	root BLOB NOT NULL, 
	ticket BIGINT NOT NULL, 
	PRIMARY KEY (root)
);
CREATE TABLE migrator_revision (
	job VARCHAR(64) NOT NULL, 
	digest VARCHAR(64) NOT NULL, 
	mapping VARCHAR(64) NOT NULL, 
	since DOUBLE NOT NULL, 
	runs_before BIGINT NOT NULL, 
	PRIMARY KEY (job)
);
CREATE TABLE migrator_run (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	kind VARCHAR(16) NOT NULL, 
	job VARCHAR(64) NOT NULL, 
	table_id VARCHAR(255) NOT NULL, 
	revision VARCHAR(64) NOT NULL, 
	scope TEXT NOT NULL, 
	state VARCHAR(16) NOT NULL, 
	started_at VARCHAR(40) NOT NULL, 
	ended_at VARCHAR(40)
);
INSERT INTO "migrator_run" VALUES(1,'backfill','shop','table-1','rev-1','','running','2026-11-22 18:56:06+00:00',NULL);
CREATE TABLE migrator_run_capture (
	run_id INTEGER NOT NULL, 
	installation VARCHAR(64) NOT NULL, 
	PRIMARY KEY (run_id)
);
CREATE TABLE migrator_sample (
	id INTEGER NOT NULL, 
	job VARCHAR(64) NOT NULL, 
	pattern VARCHAR(255) NOT NULL, 
	kind BLOB NOT NULL, 
	at DOUBLE NOT NULL, 
	content TEXT NOT NULL, 
	PRIMARY KEY (id)
);
CREATE TABLE migrator_seen_table (
	job VARCHAR(64) NOT NULL, 
	table_id VARCHAR(255) NOT NULL, 
	name VARCHAR(255) NOT NULL, 
	ticket BIGINT NOT NULL, 
	PRIMARY KEY (job, table_id)
);
INSERT INTO "migrator_seen_table" VALUES('shop','table-1','Shop',5);
CREATE TABLE migrator_segment (
	run_id INTEGER NOT NULL, 
	number INTEGER NOT NULL, 
	state TEXT NOT NULL, 
	PRIMARY KEY (run_id, number)
);
CREATE TABLE migrator_shared_table (
	table_id VARCHAR(255) NOT NULL, 
	PRIMARY KEY (table_id)
);
CREATE TABLE migrator_verified_look (
	run_id INTEGER NOT NULL, 
	look TEXT NOT NULL, 
	PRIMARY KEY (run_id)
);
CREATE TABLE migrator_window (
	job VARCHAR(64) NOT NULL, 
	pattern VARCHAR(255) NOT NULL, 
	begun_at BIGINT NOT NULL, 
	writer VARCHAR(32) NOT NULL, 
	service VARCHAR(255) NOT NULL, 
	revision VARCHAR(64) NOT NULL, 
	origin VARCHAR(16) NOT NULL, 
	counts TEXT NOT NULL, 
	PRIMARY KEY (job, pattern, begun_at, writer)
);
CREATE TABLE migrator_writer (
	id VARCHAR(32) NOT NULL, 
	table_id VARCHAR(255) NOT NULL, 
	kind VARCHAR(16) NOT NULL, 
	since DOUBLE NOT NULL, 
	alive_at DOUBLE NOT NULL, 
	fenced INTEGER NOT NULL, 
	PRIMARY KEY (id)
);
CREATE TABLE migrator_writer_revision (
	writer VARCHAR(32) NOT NULL, 
	job VARCHAR(64) NOT NULL, 
	digest VARCHAR(64) NOT NULL, 
	PRIMARY KEY (writer)
);
CREATE INDEX migrator_finding_kind ON migrator_finding (run_id, kind);
CREATE INDEX ix_migrator_open_finding_root ON migrator_open_finding (root);
CREATE INDEX ix_migrator_writer_table_id ON migrator_writer (table_id);
CREATE INDEX ix_migrator_writer_revision_job ON migrator_writer_revision (job);
CREATE INDEX ix_migrator_instance_job ON migrator_instance (job);
CREATE INDEX ix_migrator_instance_process_job ON migrator_instance_process (job);
CREATE INDEX ix_migrator_confirmed_phase_job ON migrator_confirmed_phase (job);
CREATE INDEX migrator_sample_kind ON migrator_sample (job, pattern, kind);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('migrator_run',1);
COMMIT;
