package tui

// chineseActs is what actions on files, nodes and contexts say in zh-TW.
func chineseActs() map[string]string {
	return map[string]string{
		"save the table, the text or the log in a file; :screendump lists them": "將表格、文字或日誌存成檔案；:screendump 列出",
		"what was saved of this cluster; Enter shows it":                        "此叢集已儲存的內容；Enter 顯示",
		"delete the saved files, after asking":                                  "確認後刪除已儲存的檔案",
		"copy it from your terminal":                                            "請從您的終端機複製",
		"there is no place for files: set XDG_STATE_HOME or HOME":               "沒有可存放檔案的位置：請設定 XDG_STATE_HOME 或 HOME",
		"saved as %s; :sd lists it":                                             "已存為 %s；:sd 列出",

		"the console of this cluster begins in this view, from the next time on": "此叢集的主控台下次起從此檢視開始",
		"the console of this cluster begins with :%s":                            "此叢集的主控台將從 :%s 開始", "there it begins with the pods": "在那裡從 pods 開始",
		"sort by alias": "依別名排序", "sort by API group": "依 API 群組排序",
		"favourite": "最愛", "one of the keys 1 to 9 for the namespace, or no longer": "讓此 Namespace 佔用按鍵 1 至 9 之一，或取消",
		"%s has the key %d": "%s 的按鍵為 %d", "%s is no favourite any more": "%s 不再是最愛", "until you leave": "直到您離開為止",
		"there are nine favourites; f on one of them makes room": "已有九個最愛；在其中一個上按 f 以騰出位置",

		"another name for the context, in the kubeconfig":      "在 kubeconfig 中為此 context 更名",
		"take the context out of the kubeconfig, after asking": "確認後自 kubeconfig 移除此 context",
		"rename":                    "更名",
		"renamed":                   "已更名",
		"name":                      "名稱",
		"it shows one cluster only": "它只顯示一個叢集",
		"%s is the one you are in; change to another first":                       "您正在使用 %s；請先切換到其他 context",
		"its cluster and user stay in the kubeconfig":                             "其叢集與使用者仍留在 kubeconfig 中",
		"load the text anew every two seconds, or no longer":                      "每兩秒重新載入文字，或停止",
		"all logs begin at the column that this one is scrolled to, or no longer": "所有日誌都從目前捲動到的欄開始，或取消",
		"column locked": "已鎖定欄",

		"the load that a Service bears":                         "Service 能承受的負載",
		"the known vulnerabilities of the images":               "映像檔的已知弱點",
		"../ is not in this folder: choose a file, or go there": "../ 不在此資料夾內：請選擇檔案，或先進入該資料夾",
		"not offered; port-forward it and use hey or wrk":       "不提供；請轉送連接埠後使用 hey 或 wrk",
		"not offered; use a scanner like trivy":                 "不提供；請使用 trivy 之類的掃描工具",

		"copy files from the container or to it, as kubectl cp does": "如 kubectl cp 般與容器互相複製檔案",
		"use kubectl cp there":                   "請在您的電腦上用 kubectl cp",
		"transfer":                               "傳輸",
		"from the container to here":             "從容器到此處",
		"from here to the container":             "從此處到容器",
		"what is there by that name is replaced": "同名的檔案會被取代",
		"container's path":                       "容器內的路徑", "path here": "此處的路徑", "both paths are needed": "兩個路徑都需要",
		"transferred": "已傳輸", "%d files   %s   %s/s": "%d 個檔案   %s   %s/秒", "%d links and devices are left out": "略過 %d 個連結與裝置",
		"done in %s": "完成，耗時 %s", "Esc ends it": "Esc 結束",
		"the image has no %s, which copying needs; a debug container may have it": "映像檔中沒有複製所需的 %s；除錯容器可能有",

		"a shell on the node: in a privileged pod that is removed afterwards; asks first": "在節點上開啟終端：使用特權 Pod，結束後移除；會先詢問",
		"shell on %s": "%s 的終端", "image": "映像檔",
		"A privileged pod starts on the node, in the namespace %s.":                                              "將在此節點上啟動一個特權 Pod（Namespace %s）。",
		"It shares the node's processes and network; its disk is at /host.":                                      "它共用節點的行程與網路；節點的磁碟位於 /host。",
		"A Job holds it, and the cluster removes both once the shell has ended, even if this console is killed.": "它由一個 Job 持有；終端結束後，即使此主控台被強制結束，叢集也會將兩者移除。",
		"the pod of the shell is removed":                                                                        "終端的 Pod 已移除",

		"a folder of manifests, to apply, edit or delete": "資訊清單的資料夾，可套用、編輯或刪除",
		"use kubectl apply there":                         "請在您的電腦上用 kubectl apply",
		"apply":                                           "套用", "applied": "已套用", "view": "檢視",
		"apply the manifests by server-side apply, after showing what changes":         "顯示變更後以 server-side apply 套用資訊清單",
		"delete the objects that the manifests describe, after asking; the files stay": "確認後刪除資訊清單所描述的物件；檔案會保留",
		"edit the file here": "在此編輯檔案", "show the file": "顯示檔案",
		"no manifests there": "沒有資訊清單", "none of these objects is there": "這些物件都不存在",
		"… %d more lines": "… 另有 %d 行", "%d of %d could not be applied": "%[2]d 個中有 %[1]d 個無法套用",
		"! others manage fields of these: applying takes them over": "! 其中有欄位由他人管理：套用會接管這些欄位",

		"the releases of Helm; Enter shows the newest manifest": "Helm 的 release；Enter 顯示最新的資訊清單",
		"history": "歷程", "all revisions of the release": "此 release 的所有版本",
		"go back to this revision of the release, with your helm": "以您的 helm 復原到此 release 的這個版本", "use helm rollback there": "請在那裡使用 helm rollback",
		"helm is not on this machine; copy its command for where it is": "此電腦上沒有 helm；可複製其命令到有 helm 之處執行", "helm is at work": "helm 執行中", "the revision is gone": "此版本已不存在",
		"values": "值", "the values that the release was given": "此 release 所用的值",
		"manifest": "資訊清單", "the objects of the release, as it was installed": "此 release 安裝時的物件",
	}
}
