BEGIN;
CREATE TABLE trials (
    id INTEGER PRIMARY KEY,
    task_key TEXT NOT NULL, target_key TEXT NOT NULL, task TEXT NOT NULL,
    strategy TEXT NOT NULL, seed INTEGER NOT NULL, trial INTEGER NOT NULL,
    status TEXT NOT NULL, decisions TEXT NOT NULL, trace TEXT NOT NULL, program_key TEXT NOT NULL,
    seconds REAL, times TEXT NOT NULL, message TEXT NOT NULL, max_error REAL,
    build_seconds REAL NOT NULL, run_seconds REAL NOT NULL, phase TEXT NOT NULL,
    created REAL NOT NULL, version TEXT NOT NULL,
    CHECK ((status = 'ok') = (seconds IS NOT NULL))
) STRICT;
INSERT INTO trials VALUES(1,'task','machine','small','bayes',3,0,'ok','{"tile":[4,8],"wide":{"number":"1180591620717411303424"},"fast":true}','schedule s for f {}
','p1',0.0015,'[0.0015,0.0016]','',1.0e-06,0.1,0.2,'trial',1700000000.25,'0.1.0');
INSERT INTO trials VALUES(2,'task','machine','small','bayes',3,1,'crash','{}','schedule s for f {}
','p2',NULL,'[]','SIGSEGV',NULL,0.1,0.2,'trial',1700000000.5,'0.1.0');
INSERT INTO trials VALUES(3,'task','machine','small','bayes',3,0,'ok','{"tile":[4,8],"wide":{"number":"1180591620717411303424"},"fast":true}','schedule s for f {}
','p1',0.0014,'[0.0014]','',1.0e-06,0.1,0.2,'final',1700000001.0,'0.1.0');
CREATE INDEX trials_by_task ON trials (task_key, target_key);
PRAGMA application_id = 1975840001;
PRAGMA user_version = 1;
COMMIT;
