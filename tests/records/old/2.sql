PRAGMA application_id = 1975840001;
PRAGMA user_version = 2;
BEGIN TRANSACTION;
CREATE TABLE targets (
    fingerprint TEXT PRIMARY KEY, facts TEXT NOT NULL
) STRICT;
INSERT INTO "targets" VALUES('e1598531fa9a628ce3bc451b9a51febc','{"cores":1,"cpu":"one","features":"","kind":"llvm","l1":32768,"l2":524288,"l3":8388608,"registers":0,"shared_memory":0,"threads":0,"triple":"","vector_bits":128,"with_threads":1}');
CREATE TABLE trials (
    id INTEGER PRIMARY KEY,
    task_key TEXT NOT NULL, target_key TEXT NOT NULL, task TEXT NOT NULL,
    strategy TEXT NOT NULL, seed INTEGER NOT NULL, trial INTEGER NOT NULL,
    status TEXT NOT NULL, decisions TEXT NOT NULL, trace TEXT NOT NULL, program_key TEXT NOT NULL,
    seconds REAL, times TEXT NOT NULL, message TEXT NOT NULL, max_error REAL,
    build_seconds REAL NOT NULL, run_seconds REAL NOT NULL, phase TEXT NOT NULL,
    created REAL NOT NULL, version TEXT NOT NULL,
    run TEXT NOT NULL, fingerprint TEXT NOT NULL, modules TEXT NOT NULL,
    censored INTEGER NOT NULL, cache TEXT NOT NULL, scale REAL NOT NULL,
    columns TEXT NOT NULL, features TEXT NOT NULL,
    digest TEXT NOT NULL,
    CHECK ((status = 'ok') = (seconds IS NOT NULL))
) STRICT;
INSERT INTO "trials" VALUES(1,'e23d50a9a9a0f7f64ab8707c148419ed','llvm:one:128:1:cae66941:t1','small','bayes',0,0,'ok','{"ks":[4,16]}','schedule tiled for scale {
    let [i_1] = C.loops
    let ks ~ sample_perfect_tile(i_1, parts=2) := [4, 16]
    let [i_1_0, i_1_1] = split(i_1, ks)
    compute_at(B, i_1_0)
}
','7afdaf8521afd357d70d13d64fb07382',2.0e-06,'[2e-6]','',NULL,0.0,0.0,'trial',1700000000.0,'0.2.0','aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa','e1598531fa9a628ce3bc451b9a51febc','{}',0,'warm',1.0,'c','[1.0]','3d88365db08caeff49eedc8d8684e94a');
INSERT INTO "trials" VALUES(2,'e23d50a9a9a0f7f64ab8707c148419ed','llvm:one:128:1:cae66941:t1','small','bayes',0,1,'ok','{"ks":[8,8]}','schedule tiled for scale {
    let [i_1] = C.loops
    let ks ~ sample_perfect_tile(i_1, parts=2) := [8, 8]
    let [i_1_0, i_1_1] = split(i_1, ks)
    compute_at(B, i_1_0)
}
','e16d6ebac1ececbcb0396e7f3877a0d4',1.0e-06,'[1e-6]','',NULL,0.0,0.0,'trial',1700000001.0,'0.2.0','aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa','e1598531fa9a628ce3bc451b9a51febc','{}',0,'warm',1.0,'c','[1.0]','c85fb25245d3e36fe99dea4af30bb8e7');
INSERT INTO "trials" VALUES(3,'of no program','llvm:one:128:1:cae66941:t1','lost','bayes',0,0,'ok','{"ks":[4,16]}','schedule tiled for scale {
    let [i_1] = C.loops
    let ks ~ sample_perfect_tile(i_1, parts=2) := [4, 16]
    let [i_1_0, i_1_1] = split(i_1, ks)
    compute_at(B, i_1_0)
}
','7afdaf8521afd357d70d13d64fb07382',2.0e-06,'[2e-6]','',NULL,0.0,0.0,'trial',1700000000.0,'0.2.0','aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa','e1598531fa9a628ce3bc451b9a51febc','{}',0,'warm',1.0,'c','[1.0]','75144d25e0f86fd26229a15c4cf0bb17');
CREATE TABLE workloads (
    task_key TEXT PRIMARY KEY, workload TEXT NOT NULL, program TEXT NOT NULL
) STRICT;
INSERT INTO "workloads" VALUES('e23d50a9a9a0f7f64ab8707c148419ed','e5a980cc76cca387b33a938381f7048a','program small(A: f32[64], C: f32[64]) {
    buffer B: f32[64]
    for i in 64 {
        block B {
            spatial vi in 64 = i
            B[vi] = A[vi] * 2.0
        }
    }
    for i_1 in 64 {
        block C {
            spatial vi in 64 = i_1
            C[vi] = B[vi] + 1.0
        }
    }
}
');
CREATE INDEX trials_by_task ON trials (task_key, target_key);
CREATE UNIQUE INDEX trials_by_digest ON trials (digest);
COMMIT;
