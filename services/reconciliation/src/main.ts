import { startService } from '@holdfast/runtime/nest';
import { ReconciliationModule } from './module.js';

startService({ name: 'reconciliation', module: ReconciliationModule });
