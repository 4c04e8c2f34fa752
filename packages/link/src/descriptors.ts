/** The error for a process, or a machine, without file descriptors left. */
import { constants } from 'node:os';
import { RoceError } from '@node-roce/transport';

const { EMFILE, ENFILE } = constants.errno;

/**
 * Calls `open`; an error that means "no descriptors left" becomes ERR_ROCE_NO_DESCRIPTORS. All
 * others pass as they are.
 */
export function withDescriptors<T>(open: () => T): T {
  try {
    return open();
  } catch (error) {
    throw explainDescriptors(error);
  }
}

/** The error to throw in place of this one. */
export function explainDescriptors(error: unknown): unknown {
  const { code, errno, info, message } = error as NodeJS.ErrnoException & { info?: { errno?: number } };
  // os.networkInterfaces() throws ERR_SYSTEM_ERROR with a number of either sign in `info`.
  const number = Math.abs(info?.errno ?? errno ?? 0);
  // A thread's event loop needs descriptors, too; only the message shows that they were missing.
  const worker = code === 'ERR_WORKER_INIT_FAILED' && message.includes('EMFILE');
  if (code !== 'EMFILE' && code !== 'ENFILE' && number !== EMFILE && number !== ENFILE && !worker)
    return error;
  const whose = code === 'ENFILE' || number === ENFILE ? 'the machine' : 'the process';
  return new RoceError('ERR_ROCE_NO_DESCRIPTORS', `${whose} has no file descriptor left`, {
    errno: 'EMFILE',
    expected: 'fewer open files and sockets, or a higher limit (ulimit -n)',
    cause: error,
  });
}
