import { startService } from '@holdfast/runtime/nest';
import { OrchestratorModule } from './module.js';

startService({ name: 'orchestrator', module: OrchestratorModule });
