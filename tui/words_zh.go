package tui

// traditionalChinese is the catalogue of zh-TW.
func traditionalChinese() map[string]string {
	return map[string]string{
		"this console shows one cluster only": "此主控台只顯示一個叢集",
		"Data":                                "資料", "Cluster": "叢集", "User": "使用者", "Space": "命名空間", "all": "全部", "read only": "唯讀",
		"live": "即時", "behind": "落後", "connecting": "連線中", "reconnecting": "重新連線中", "stale": "過時", "revision": "版本",
		"loading…": "載入中…", "nothing matches the filter; Esc clears it": "沒有符合篩選的項目；Esc 清除", "there are none": "沒有項目",
		"faults only": "僅異常", "help": "說明", "Keys and commands of %s": "%s 的按鍵與命令", "Not here": "不適用於此",
		"not for %s": "不適用於 %s", "this console is read only": "此主控台為唯讀", "nothing to copy, or too much": "沒有可複製的內容，或內容過多",
		"the console runs on %s, not on your machine; %s": "主控台在 %s 上執行，而不是在您的電腦上；%s",
		"ssh's own ~^Z does it":                           "請用 ssh 的 ~^Z",
		"use kubectl port-forward there":                  "請在您的電腦上用 kubectl port-forward",
		"copied":                                          "已複製", "no kind or command %q; Ctrl-A lists them": "沒有名為 %q 的種類或命令；Ctrl-A 列出全部",
		"command": "命令", "filter": "篩選", "open": "開啟", "copy": "複製", "wrap": "換行", "managed fields": "受管欄位",
		"describe": "詳情", "edit": "編輯", "delete": "刪除", "logs": "日誌", "previous": "前次日誌", "shell": "終端",
		"port-forward": "轉送連接埠", "scale": "擴縮", "restart": "重新啟動", "cordon": "停止排程", "uncordon": "恢復排程", "drain": "清空",
		"decode": "解碼", "events": "事件", "owner": "擁有者", "trigger": "觸發", "follow": "跟隨", "timestamps": "時間戳記",
		"why": "為什麼", "used by": "被誰使用", "journey": "變更歷程", "copy the mend": "複製修正指令",
		"Cancel": "取消", "Delete": "刪除", "OK": "確定", "Apply": "套用",
		"type %q to confirm": "輸入 %q 以確認", "deleted": "已刪除", "scaled": "已擴縮", "restarted": "已重新啟動",
		"save": "儲存", "search": "搜尋", "next": "下一個", "cancel": "取消", "Save": "儲存", "Discard": "捨棄",
		"what you changed is not saved": "您的變更尚未儲存",
		"unchanged":                     "沒有變更", "saved": "已儲存",
		"Control plane": "控制平面", "Nodes": "節點", "Workloads": "工作負載", "What is wrong now": "目前的問題", "Everything is well.": "一切正常。",
		"Leader": "主節點", "unreachable": "無法連線", "Follower": "從節點", "Network traffic": "網路流量", "Container execution": "容器執行", "Architecture": "架構圖",
		"type a kind or a command": "輸入種類或命令", "filter rows, or search text": "篩選列，或搜尋文字", "what the keys do": "按鍵的作用",
		"theme": "佈景主題", "no theme %q": "沒有名為 %q 的佈景主題",
		"refused": "遭拒", "nothing here is amiss": "這裡沒有異常", "there are none in %s; 0 looks in all namespaces": "%s 中沒有項目；按 0 查看所有命名空間", "%d more are well": "另有 %d 項正常",
		"This cordons the node and evicts its %d pods. Pods of DaemonSets stay, data in emptyDir volumes are lost, disruption budgets are kept. It stops at pods that no controller would make again.": "這會停止節點的排程並驅逐其上 %d 個 Pod。DaemonSet 的 Pod 會保留，emptyDir 磁碟區的資料會遺失，並遵守中斷預算。遇到沒有控制器會重建的 Pod 時便停止。",
		"clear the filter, or go back": "清除篩選，或返回", "leave": "離開", "open what the row stands for": "開啟此列代表的物件",
	}
}
