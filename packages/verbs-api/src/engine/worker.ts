/** The thread of an engine that does not share the program's: commands in, results and events out. */
import { parentPort, workerData } from 'node:worker_threads';
import { assemble } from './assemble.ts';
import { openLink } from './open-link.ts';
import { type FromEngine, type ToEngine, toPlain, type WorkerStart } from './worker-protocol.ts';

const port = parentPort!;
const post = (message: FromEngine): void => port.postMessage(message);

async function main(start: WorkerStart): Promise<void> {
  const link = await openLink(start.link);
  // Only the program's thread knows its subscribers.
  const listening = new Int32Array(start.listening);
  const { run, pump, facts } = assemble(
    link,
    {
      onCompletionEvent: (cq) => post({ type: 'completion', cq }),
      onCmEvent: (event) => post({ type: 'cm', event }),
      onDiagnostics: (told) => post({ type: 'diagnostics', told }),
      onAsyncEvent: (event) => {
        if (event.type !== 'DEVICE_FATAL') post({ type: 'event', event });
      },
    },
    start.options,
    () => Atomics.load(listening, 0),
  );
  port.on('message', (message: ToEngine) => {
    if (message.type === 'wake') {
      pump.wake();
      return;
    }
    if (message.type === 'close') {
      pump
        .close()
        .then(
          () => post({ type: 'closed' }),
          (error) => post({ type: 'closed', error: toPlain(error) }),
        )
        .finally(() => port.close());
      return;
    }
    try {
      const value = run(message.name, message.args);
      pump.settle();
      post({ type: 'result', id: message.id, value });
    } catch (error) {
      post({ type: 'failed', id: message.id, error: toPlain(error) });
    }
  });
  post({ type: 'ready', facts });
}

main(workerData as WorkerStart).catch((error) => {
  post({ type: 'unusable', error: toPlain(error) });
  port.close();
});
