/** The words of the C library for numbers are libibverbs' own. */
import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';

const built = join(import.meta.dirname, '../ibverbs/build/libibverbs.so.1');
const found = spawnSync('cc', ['-print-file-name=libibverbs.so.1'], { encoding: 'utf8' });
const installed = found.stdout?.trim() ?? '';

/** Prints what each library's function of that name answers, where it has one. */
const script = `
import ctypes, sys
for name in sys.argv[2:]:
    function = getattr(ctypes.CDLL(sys.argv[1]), name, None)
    if not function: continue
    function.restype = ctypes.c_char_p
    function.argtypes = [ctypes.c_int]
    for number in range(-2, 40): print(name, number, function(number).decode())
`;
const NAMES = ['ibv_node_type_str', 'ibv_port_state_str', 'ibv_event_type_str', 'ibv_wc_status_str'];

test.skipIf(!existsSync(built) || !installed.includes('/'))(
  'texts are the same as the installed library’s',
  () => {
    const [ours, theirs] = [built, installed].map((library) =>
      spawnSync('python3', ['-c', script, library, ...NAMES], { encoding: 'utf8' }).stdout.split('\n'),
    );
    expect(theirs.length).toBeGreaterThan(100);
    expect(ours).toEqual(theirs);
  },
);
